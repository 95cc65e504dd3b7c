"""Whether a node's device plugins offer the extended resources of a pod, or a claim has to give them (KEP-5004)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints, Demand
from scheduler.core.model.records import NodeRecord
from wire import names

#: Resources, and whether the node has to offer them.
Sources = tuple[tuple[str, bool], ...]


class ResourceSource(Filter):
    """The sources of a pod's extended resources: one way of the pod is for nodes that offer them, others are not."""

    kind = "resource-source"
    words = "node(s) offer extended resources of the Pod in part by device plugins"

    @override
    def asked(self, constraints: Constraints) -> Sources | None:
        """The resources."""
        return constraints.sources or None

    @override
    def admits(self, node: NodeRecord, asked: Sources) -> bool:
        """Whether the node offers each resource that it has to, and none of the others."""
        return all(_offers(node.capacity, name) is is_offered for name, is_offered in asked)

    @override
    def effort(self, asked: Sources) -> int:
        """Each resource is looked for."""
        return len(asked)

    @override
    def reads(self, node: NodeRecord) -> object:
        """Which extended resources it has."""
        return bool(node.capacity.gpus), tuple(name for name, _ in node.capacity.extended)


def _offers(capacity: Demand, resource: str) -> bool:
    if resource == names.GPU_RESOURCE:
        return capacity.gpus > 0
    return any(name == resource and amount > 0 for name, amount in capacity.extended)
