"""Node selector and required node affinity: what a pod asks of a node's labels and of its name.

Expressions on labels and fields are those of core/v1 NodeSelectorRequirement, which volumes have, too. The affinity
that an administrator adds to all pods counts as well (kube-scheduler's NodeAffinityArgs.addedAffinity).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints, Requirement, Term
from scheduler.core.model.records import NodeRecord
from wire.go import parse_int

#: A list of values is gone through so much faster than all else.
_VALUES_PER_COMPARISON: Final = 32


def holds(term: Term, node: NodeRecord) -> bool:
    """Whether all expressions of a term hold; one without any holds nowhere."""
    if not term.labels and not term.fields:
        return False
    fields = {"metadata.name": node.name}
    return all(meets(r, node.labels) for r in term.labels) and all(meets(r, fields) for r in term.fields)


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Judge one expression; an operator that is not known holds nowhere."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    actual, bound = parse_int(value), parse_int(requirement.values[0])
    if actual is None or bound is None:
        return False
    return actual > bound if requirement.operator == "Gt" else actual < bound


def keys_of(requirements: Iterable[Requirement]) -> tuple[str, ...]:
    """The labels or fields that expressions name, each once."""
    return tuple(dict.fromkeys(requirement.key for requirement in requirements))


def effort_of(terms: Iterable[Term]) -> int:
    """What it takes to judge a node by these terms, in comparisons or so."""
    return sum(1 + sum(map(_effort_of, (*term.labels, *term.fields))) for term in terms)


def effort_of_all(requirements: Iterable[Requirement]) -> int:
    """What it takes to judge labels by expressions that all have to hold, in comparisons or so."""
    return sum(map(_effort_of, requirements))


def _effort_of(requirement: Requirement) -> int:
    return 1 + len(requirement.values) // _VALUES_PER_COMPARISON


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
