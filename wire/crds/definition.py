"""What a CustomResourceDefinition says of a kind besides its schema."""

from __future__ import annotations

from typing import Any

import msgspec

from wire.crds import schema


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
        version["schema"] = {"openAPIV3Schema": schema.of_object(self.type)}
        if self.has_status:
            version["subresources"] = {"status": {}}
        return version
