"""What a CustomResourceDefinition says of a kind besides its schema.

OpenAPI v3 structural schemas made from wire structs.

Kubernetes takes a narrow subset of JSON schema: one type per node, no references, no ``null`` in unions. So
``X | None`` is X (an absent field, which is how Go's ``omitempty`` writes it), structs are written in place, and what a
field says beyond its type comes from ``Meta(description=..., extra_json_schema=...)``. A field without default is
required.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
from msgspec import inspect

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
