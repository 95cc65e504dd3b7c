"""Node affinity as a setting: a NodeSelector as manifests have it, in JSON."""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.core.convert.constraints import terms
from scheduler.core.filters.requirements import effort_of
from scheduler.core.model.pod_class import Requirement, Term
from wire.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

ALLOWED: Final = (
    '{"nodeSelectorTerms": [{"matchExpressions": [{"key": KEY, "operator": In, NotIn, Exists, DoesNotExist, Gt or Lt, '
    '"values": [...]}]}]}, at most 100 expressions'
)
_OPERATORS: Final = frozenset(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
_OF_FIELDS: Final = frozenset(("In", "NotIn"))
_NAME: Final = "metadata.name"
#: All nodes are compared with it, for each kind of pod.
_MOST_EFFORT: Final = 100


class _Requirement(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    operator: str
    values: list[str] = []


class _Term(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    match_expressions: list[_Requirement] = []
    match_fields: list[_Requirement] = []


class _Selector(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    node_selector_terms: list[_Term]


def read(given: str) -> tuple[Term, ...]:
    """Read the terms of which one has to hold. Raises ValueError with the text and what is allowed."""
    try:
        found = msgspec.json.decode(given, type=_Selector)
    except msgspec.DecodeError as error:
        raise ValueError(f"{given!r} can't be read ({error}); allowed: {ALLOWED}") from error
    if wrong := _wrong(found):
        raise ValueError(f"{wrong}; allowed: {ALLOWED}")
    selector = NodeSelector(
        node_selector_terms=[
            NodeSelectorTerm(match_expressions=_of(term.match_expressions), match_fields=_of(term.match_fields))
            for term in found.node_selector_terms
        ]
    )
    made = terms(selector)
    if not all(term.labels or term.fields for term in made):
        raise ValueError(f"{given!r} has a term that holds nowhere; allowed: {ALLOWED}")
    if effort_of(made) > _MOST_EFFORT:
        raise ValueError(f"{given[:100]!r}... is too large; allowed: {ALLOWED}")
    return made


def _of(requirements: list[_Requirement]) -> list[NodeSelectorRequirement]:
    return [NodeSelectorRequirement(key=each.key, operator=each.operator, values=each.values) for each in requirements]


def _wrong(found: _Selector) -> str:
    if not found.node_selector_terms:
        return "nodeSelectorTerms is empty"
    for term in found.node_selector_terms:
        for each in term.match_fields:
            if each.key != _NAME or each.operator not in _OF_FIELDS or len(each.values) != 1:
                return f"matchFields has {each.key!r} {each.operator!r}: it takes {_NAME} In or NotIn one name"
        for each in term.match_expressions:
            if wrong := _wrong_expression(each):
                return wrong
    return ""


def _wrong_expression(each: _Requirement) -> str:
    if each.operator not in _OPERATORS:
        return f"the operator {each.operator!r} is unknown"
    least, most = {"Exists": (0, 0), "DoesNotExist": (0, 0), "Gt": (1, 1), "Lt": (1, 1)}.get(each.operator, (1, None))
    if len(each.values) < least or (most is not None and len(each.values) > most):
        return f"{each.operator} of {each.key!r} has {len(each.values)} values"
    return ""


def written(found: tuple[Term, ...]) -> str:
    """Write the terms as they may be given."""
    return msgspec.json.encode({"nodeSelectorTerms": [_term(term) for term in found]}).decode()


def _term(term: Term) -> dict[str, list[dict[str, object]]]:
    parts = {"matchExpressions": term.labels, "matchFields": term.fields}
    return {name: [_requirement(each) for each in part] for name, part in parts.items() if part}


def _requirement(each: Requirement) -> dict[str, object]:
    values = {"values": list(each.values)} if each.values else {}
    return {"key": each.key, "operator": each.operator, **values}
