"""Preferred node affinity."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.beside import ZONE
from tests.scheduler.core.scores.preferences.scoring import PREFERRED, scores


def _prefers(*terms: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    drawn = [{"weight": weight, "preference": term} for weight, term in terms]
    return {"affinity": {"nodeAffinity": {PREFERRED: drawn}}}


def _zone(*values: str, operator: str = "In") -> dict[str, Any]:
    return {"matchExpressions": [{"key": ZONE, "operator": operator, "values": list(values)}]}


_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["s"]}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (_prefers((10, _zone("x"))), {"p": 100, "q": 100, "r": 0, "s": 0}),
        (_prefers((30, _zone("x")), (70, _zone("y"))), {"p": 42, "q": 42, "r": 100, "s": 0}),
        (_prefers((30, _zone("x", "y")), (60, _zone("y"))), {"p": 33, "q": 33, "r": 100, "s": 0}),
        (_prefers((5, _NAME)), {"p": 0, "q": 0, "r": 0, "s": 100}),
        (_prefers((5, _zone("nowhere"))), {"p": 0, "q": 0, "r": 0, "s": 0}),
        # A term without expressions holds nowhere, one without weight does not count.
        (_prefers((5, {}), (0, _zone("x"))), {}),
    ],
)
def test_nodes_where_more_weight_holds_are_better(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert scores("node-affinity", spec=spec) == expected


def test_the_best_of_nodes_that_fit_has_all() -> None:
    spec = _prefers((30, _zone("x")), (70, _zone("y")))
    assert scores("node-affinity", spec=spec, only="ps") == {"p": 100, "s": 0}
