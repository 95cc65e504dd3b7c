"""Node selector and required node affinity: what a pod asks of a node's labels and of its name.

With the affinity that an administrator adds to all pods (kube-scheduler's NodeAffinityArgs.addedAffinity).
"""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.requirements import effort_of, holds
from scheduler.core.model.pod_class import Constraints, Term
from scheduler.core.model.records import NodeRecord

_WORDS = "node(s) didn't match Pod's node affinity/selector"


class Selector(Filter):
    """``spec.nodeSelector``: each label has this value."""

    kind = "selector"
    words = _WORDS

    @override
    def asked(self, constraints: Constraints) -> tuple[tuple[str, str], ...] | None:
        """Labels and values."""
        return constraints.selector or None

    @override
    def admits(self, node: NodeRecord, asked: tuple[tuple[str, str], ...]) -> bool:
        """Whether the node has them all."""
        return all(node.labels.get(key) == value for key, value in asked)

    @override
    def effort(self, asked: tuple[tuple[str, str], ...]) -> int:
        """Each label is compared."""
        return len(asked)

    @override
    def reads(self, node: NodeRecord) -> object:
        """The labels."""
        return node.labels


class NodeAffinity(Filter):
    """``requiredDuringSchedulingIgnoredDuringExecution``: one of the terms holds."""

    kind = "affinity"
    words = _WORDS

    @override
    def asked(self, constraints: Constraints) -> tuple[Term, ...] | None:
        """The terms; () matches nowhere."""
        return constraints.terms

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
