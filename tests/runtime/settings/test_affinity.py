"""Node affinity as a setting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime.settings.scheduler import read, written
from scheduler.core.model.pod_class import Requirement, Term

_POOL = {"key": "pool", "operator": "In", "values": ["a", "b"]}
_NOT_ON = {"key": "metadata.name", "operator": "NotIn", "values": ["n"]}


def _json(*terms: dict[str, Any]) -> str:
    return json.dumps({"nodeSelectorTerms": list(terms)})


def test_terms_are_read_as_manifests_have_them_and_written_so() -> None:
    given = _json({"matchExpressions": [_POOL]}, {"matchFields": [_NOT_ON]})
    found = read(given)
    assert found == (
        Term((Requirement("pool", "In", ("a", "b")),), ()),
        Term((), (Requirement("metadata.name", "NotIn", ("n",)),)),
    )
    assert json.loads(written(found)) == json.loads(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("pool=a", "can't be read (JSON is malformed"),
        ("{}", "missing required field `nodeSelectorTerms`"),
        (_json(), "nodeSelectorTerms is empty"),
        (_json({}), "has a term that holds nowhere"),
        (_json({"matchExpresions": [_POOL]}), "unknown field `matchExpresions`"),
        (_json({"matchExpressions": [{**_POOL, "operator": "Is"}]}), "the operator 'Is' is unknown"),
        (_json({"matchExpressions": [{**_POOL, "values": []}]}), "In of 'pool' has 0 values"),
        (_json({"matchExpressions": [{**_POOL, "operator": "Exists"}]}), "Exists of 'pool' has 2 values"),
        (_json({"matchExpressions": [{**_POOL, "operator": "Gt"}]}), "Gt of 'pool' has 2 values"),
        (_json({"matchExpressions": [{**_POOL, "values": ["a b"]}]}), "has a term that holds nowhere"),
        (_json({"matchFields": [{**_NOT_ON, "key": "spec"}]}), "it takes metadata.name In or NotIn one name"),
        (_json({"matchFields": [{**_NOT_ON, "values": ["n", "m"]}]}), "it takes metadata.name In or NotIn one name"),
        (_json(*[{"matchExpressions": [_POOL]}] * 60), "is too large"),
    ],
)
def test_what_means_nothing_is_refused_with_what_is_allowed(given: str, words: str) -> None:
    with pytest.raises(ValueError, match="allowed: ") as refused:
        read(given)
    assert words in str(refused.value)
