"""Where the volumes of a pod let it be, as required node affinity: for a scaling pod, which mounts none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from scheduler.core.filters.volume_places import NEW_LABELS
from scheduler.core.model.pod_class import Requirement, Term, VolumeRule
from wire.core import NodeSelector

#: Alternatives that volumes leave, multiplied, beyond which nobody reads them.
_MOST_TERMS: Final = 64

_Term = dict[str, Any]


def selector(written: NodeSelector | None, rules: Sequence[VolumeRule]) -> dict[str, Any] | None:
    """What nodes a pod takes by its own words and by its volumes; None if that can't be said, or is nowhere."""
    terms = [{}] if written is None else [msgspec.to_builtins(term) for term in written.node_selector_terms or ()]
    for rule in rules:
        if rule.terms is not None:
            alternatives = [_term(term) for term in rule.terms if term.labels or term.fields]
            terms = [_both(own, other) for own in terms for other in alternatives]
        zones = [_in(NEW_LABELS.get(key, key), values) for key, values in rule.zones]
        terms = [_both(own, {"matchExpressions": zones}) for own in terms] if zones else terms
        if len(terms) > _MOST_TERMS:
            return None
    return {"nodeSelectorTerms": terms} if terms else None


def _term(term: Term) -> _Term:
    return {"matchExpressions": list(map(_expression, term.labels)), "matchFields": list(map(_expression, term.fields))}


def _expression(requirement: Requirement) -> _Term:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}


def _in(key: str, values: Sequence[str]) -> _Term:
    return {"key": key, "operator": "In", "values": list(values)}


def _both(one: _Term, other: _Term) -> _Term:
    fields = ("matchExpressions", "matchFields")
    joined = {field: [*(one.get(field) or ()), *(other.get(field) or ())] for field in fields}
    return {field: found for field, found in joined.items() if found}
