"""Topology, ``kai.scheduler/v1alpha1`` (kai-contract, section 2.4)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from wire.core import ObjectMeta, WireStruct
from wire.crds.definition import Definition
from wire.names import HOSTNAME_LABEL, KAI_GROUP

#: A label key: an optional DNS sub-domain and a slash, then a name.
_QUALIFIED_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)

_RULES = [
    {
        "rule": "self.map(level, level.nodeLabel) == oldSelf.map(level, level.nodeLabel)",
        "message": "nodeLabel structure is immutable; only aliases may be edited",
    },
    {
        "rule": "self.all(level, self.exists_one(other, other.nodeLabel == level.nodeLabel))",
        "message": "nodeLabel must be unique",
    },
    {
        "rule": (
            f"!self.exists(level, level.nodeLabel == '{HOSTNAME_LABEL}')"
            f" || self[size(self) - 1].nodeLabel == '{HOSTNAME_LABEL}'"
        ),
        "message": f"the {HOSTNAME_LABEL} label can only be used at the lowest level of topology",
    },
]


class TopologyLevel(WireStruct, frozen=True, gc=False):
    """One level: nodes with the same value of the label are one domain."""

    node_label: Annotated[
        str,
        Meta(
            description="Key of the node label that tells the domains apart.",
            extra_json_schema={"minLength": 1, "maxLength": 316, "pattern": _QUALIFIED_NAME},
        ),
    ]
    alias: Annotated[
        str | None,
        Meta(description="Other name of this level.", extra_json_schema={"pattern": _QUALIFIED_NAME}),
    ] = None


class TopologySpec(WireStruct, frozen=True, gc=False):
    """The levels of a topology."""

    levels: Annotated[
        list[TopologyLevel],
        Meta(
            description="From coarse to fine.",
            extra_json_schema={
                "minItems": 1,
                "maxItems": 16,
                "x-kubernetes-list-type": "atomic",
                "x-kubernetes-validations": _RULES,
            },
        ),
    ]


class Topology(WireStruct, frozen=True, gc=False, kw_only=True):
    """How the nodes are wired, as levels of node labels."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec


DEFINITION = Definition(
    group=KAI_GROUP,
    version="v1alpha1",
    kind="Topology",
    plural="topologies",
    namespaced=False,
    has_status=False,
    type=Topology,
)
