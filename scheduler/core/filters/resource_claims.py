"""Where the ResourceClaims of a pod can be used, and whether a node's device plugins serve it without one (KEP-5004).

An allocated claim can be used where the node selector of its allocation says.
"""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.node_affinity import effort_of, holds
from scheduler.core.model.pod_class import Constraints, Demand, Term
from scheduler.core.model.records import NodeRecord
from wire import names

#: Of each claim that is not usable everywhere: the terms of which one has to hold.
Places = tuple[tuple[Term, ...], ...]


class ClaimPlaces(Filter):
    """``status.allocation.nodeSelector`` of ResourceClaims (KEP-4381)."""

    kind = "claim-place"
    words = "node(s) where an allocated ResourceClaim is not available"

    @override
    def asked(self, constraints: Constraints) -> Places | None:
        """The terms of each claim that has some."""
        return constraints.allocated or None

    @override
    def admits(self, node: NodeRecord, asked: Places) -> bool:
        """Whether a term of each claim holds."""
        return all(any(holds(term, node) for term in terms) for terms in asked)

    @override
    def effort(self, asked: Places) -> int:
        """Each expression is compared."""
        return sum(map(effort_of, asked))

    @override
    def reads(self, node: NodeRecord) -> object:
        """Labels and name."""
        return (node.name, node.labels)


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
