"""Where the allocated ResourceClaims of a pod can be used: by the node selectors of their allocations."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.requirements import effort_of, holds
from scheduler.core.model.pod_class import Constraints, Term
from scheduler.core.model.records import NodeRecord

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
