"""Expressions on labels and fields, as node affinity and volumes have them (core/v1 NodeSelectorRequirement)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.core.model.pod_class import Requirement, Term
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
