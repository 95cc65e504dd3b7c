"""Node affinity that an administrator adds to all pods (kube-scheduler's NodeAffinityArgs.addedAffinity)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.requirements import effort_of, holds
from scheduler.core.model.records import Constraints, NodeRecord, Term


class EnforcedAffinity(Filter):
    """One of its terms holds. Every pod asks it, beside its own node affinity.

    ``terms``: None asks nothing; () holds nowhere.
    """

    kind = "enforced-affinity"
    words = "node(s) didn't match scheduler-enforced node affinity"

    def __init__(self, terms: tuple[Term, ...] | None = None) -> None:
        self.terms = terms

    @override
    def asked(self, constraints: Constraints) -> tuple[Term, ...] | None:
        """The terms."""
        del constraints
        return self.terms

    @override
    def admits(self, node: NodeRecord, asked: tuple[Term, ...]) -> bool:
        """Whether one of them holds."""
        return any(holds(term, node) for term in asked)

    @override
    def effort(self, asked: tuple[Term, ...]) -> int:
        """Each expression is compared."""
        return effort_of(asked)

    @override
    def reads(self, node: NodeRecord) -> object:
        """Labels and name."""
        return (node.name, node.labels)
