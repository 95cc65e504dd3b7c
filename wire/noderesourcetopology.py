"""NodeResourceTopology (topology.node.k8s.io/v1alpha2), in part: NUMA nodes, and the kubelet's policy.

Published by NFD's topology updater and others, an object a node, with the name of the node.
"""

from __future__ import annotations

from wire.core import ObjectMeta, WireStruct


class Attribute(WireStruct, frozen=True, gc=False):
    """An attribute of the node or of a zone."""

    name: str = ""
    value: str = ""


class ResourceInfo(WireStruct, frozen=True, gc=False):
    """How much of a resource a zone has, gives to pods, and has left (quantities)."""

    name: str = ""
    capacity: str | int | float = 0
    allocatable: str | int | float = 0
    available: str | int | float = 0


class Zone(WireStruct, frozen=True, gc=False):
    """A NUMA node, if its type is ``Node``."""

    name: str = ""
    type: str = ""
    resources: list[ResourceInfo] | None = None


class NodeResourceTopology(WireStruct, frozen=True, gc=False):
    """``topology_policies`` is deprecated, and read where attributes don't name the policy."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    topology_policies: list[str] | None = None
    zones: list[Zone] | None = None
    attributes: list[Attribute] | None = None
