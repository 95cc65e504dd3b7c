"""What a CustomResourceDefinition says of a kind: OpenAPI v3 structural schemas made from wire structs, and the rest.

Kubernetes takes a narrow subset of JSON schema: one type per node, no references, no ``null`` in unions. So ``X |
None`` is X (an absent field, which is how Go's ``omitempty`` writes it), structs are written in place, and what a field
says beyond its type comes from ``Meta(description=..., extra_json_schema=...)``. A field without default is required.

Constraints are in ``extra_json_schema`` only: the API server enforces them when objects are written, and reading stays
lenient, so that one object stored before a rule existed can't stop a whole list from being decoded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Annotated, Any

import msgspec
from msgspec import Meta, inspect

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


Schema = dict[str, Any]


class Unsupported(TypeError):
    """Raised for a field type that has no structural schema: a mistake in the struct, found by its test."""


def of_object(struct: type[msgspec.Struct]) -> Schema:
    """Schema of a top-level object: the API server owns apiVersion, kind and metadata and says what is in them."""
    schema = of_type(inspect.type_info(struct))
    return {**schema, "properties": {**schema["properties"], "metadata": {"type": "object"}}}


def of_type(info: inspect.Type) -> Schema:
    """Schema of any field type. Raises Unsupported."""
    match info:
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            return _with_extra(inner, extra or {})
        case inspect.UnionType(types=types):
            return of_type(_the_one(types))
        case inspect.StructType():
            return _of_struct(info)
        case inspect.ListType(item_type=item):
            return {"type": "array", "items": of_type(item)}
        case inspect.DictType(value_type=value):
            is_free = isinstance(value, inspect.AnyType)
            return {"type": "object"} if is_free else {"type": "object", "additionalProperties": of_type(value)}
        case _:
            return {"type": _scalar(info)}


def _with_extra(inner: inspect.Type, extra: Schema) -> Schema:
    """The annotation's keys win; one that states alternatives replaces the type (int-or-string has none of its own)."""
    extra = deepcopy(extra)
    return extra if "anyOf" in extra else {**of_type(inner), **extra}


def _the_one(types: tuple[inspect.Type, ...]) -> inspect.Type:
    present = [item for item in types if not isinstance(item, inspect.NoneType)]
    if len(present) != 1:
        raise Unsupported(f"a union of {len(present)} types has no structural schema: {present}")
    return present[0]


def _of_struct(info: inspect.StructType) -> Schema:
    schema: Schema = {"type": "object"}
    if own_doc := info.cls.__dict__.get("__doc__"):
        schema["description"] = " ".join(own_doc.split())
    schema["properties"] = {item.encode_name: of_type(item.type) for item in info.fields}
    if required := [item.encode_name for item in info.fields if item.required]:
        schema["required"] = required
    return schema


def _scalar(info: inspect.Type) -> str:
    match info:
        case inspect.StrType():
            return "string"
        case inspect.BoolType():
            return "boolean"
        case inspect.IntType():
            return "integer"
        case inspect.FloatType():
            return "number"
        case _:
            raise Unsupported(f"{type(info).__name__} has no structural schema")


class Misfit(msgspec.Struct, frozen=True):
    """A value that a schema does not take. ``allowed``: what it takes there; "": the field is unknown, and dropped.

    ``known``: the fields that there are in its place.
    """

    field: str
    value: Any
    allowed: str = ""
    known: tuple[str, ...] = ()


def misfits(schema: Schema, value: Any, field: str) -> Iterator[Misfit]:
    """Yield what the API server refuses or drops of a value, whose types are right, by a schema of ``of_type``."""
    if isinstance(value, dict):
        fields, rest = schema.get("properties"), schema.get("additionalProperties")
        for key, inner in value.items():
            place = f"{field}.{key}"
            if (below := (fields or {}).get(key, rest)) is not None:
                yield from misfits(below, inner, place)
            elif fields is not None:
                yield Misfit(place, inner, known=tuple(fields))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from misfits(schema.get("items", {}), inner, f"{field}[{number}]")
    elif value is not None and (allowed := _refused(schema, value)):
        yield Misfit(field, value, allowed)


def _refused(schema: Schema, value: Any) -> str:
    """What a schema allows in place of a value; "" if it takes that."""
    if "enum" in schema and value not in schema["enum"]:
        return ", ".join(map(str, schema["enum"]))
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return f"{schema.get('minLength', 0)} to {schema.get('maxLength', 'any number of')} characters"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return f"text of the form {schema['pattern']}"
    elif isinstance(value, int | float):
        is_short = schema.get("format") == "int32"
        least = schema.get("minimum", -(2**31) if is_short else -math.inf)
        most = schema.get("maximum", 2**31 - 1 if is_short else math.inf)
        if value < least or value > most:
            return f"{least} to {most}"
    return ""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of ``kubectl get``."""

    name: str
    json_path: str
    type: str = "string"


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """One kind with one version, stored and served as it is written: there are no conversions.

    ``needed_by``: the only component that needs it; "": none does without.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    has_status: bool
    type: type[msgspec.Struct]
    needed_by: str = ""
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()

    @property
    def name(self) -> str:
        """Name of the CustomResourceDefinition, which Kubernetes prescribes."""
        return f"{self.plural}.{self.group}"

    def manifest(self) -> dict[str, Any]:
        """Build the whole ``apiextensions.k8s.io/v1`` object."""
        names: dict[str, Any] = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.kind.lower(),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": self.group,
                "names": names,
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "versions": [self._version()],
            },
        }

    def _version(self) -> dict[str, Any]:
        version: dict[str, Any] = {"name": self.version, "served": True, "storage": True}
        if self.columns:
            version["additionalPrinterColumns"] = [
                {"name": column.name, "type": column.type, "jsonPath": column.json_path} for column in self.columns
            ]
        version["schema"] = {"openAPIV3Schema": of_object(self.type)}
        if self.has_status:
            version["subresources"] = {"status": {}}
        return version
