"""Field types that several CRDs share, with what their OpenAPI schema says beyond the Python type.

The constraints are in ``extra_json_schema`` only: the API server enforces them when objects are written, and reading
stays lenient, so that one object stored before a rule existed can't stop a whole list from being decoded.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

#: Read by wire.quantity only. The pattern is the grammar of ``resource.Quantity`` as every Kubernetes CRD states it.
Quantity = Annotated[
    str | int | float,
    Meta(
        extra_json_schema={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": (
                r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
                r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
            ),
            "x-kubernetes-int-or-string": True,
        }
    ),
]
#: Resource name to quantity.
ResourceList = dict[str, Quantity]

#: An object whose fields are not ours to know: kept as it is.
Opaque = Annotated[dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})]
