"""Node affinity that an administrator adds to all pods (kube-scheduler's NodeAffinityArgs.addedAffinity)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.node_affinity import NodeAffinity
from scheduler.core.model.pod_class import Constraints, Term


class EnforcedAffinity(NodeAffinity):
    """Every pod asks it, beside its own node affinity, and it is judged alike.

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
