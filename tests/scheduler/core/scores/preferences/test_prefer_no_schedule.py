"""Taints PreferNoSchedule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.objects import node
from tests.scheduler.core.scores.preferences.scoring import scores

_P, _Q = ("p", "", "PreferNoSchedule"), ("q", "1", "PreferNoSchedule")
_NODES = (node("a"), node("b", taints=[_P]), node("c", taints=[_P, _Q, ("q", "2", "PreferNoSchedule")]))


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], {"a": 100, "b": 67, "c": 0}),
        ([{"key": "p", "operator": "Exists"}], {"a": 100, "b": 100, "c": 0}),
        ([{"key": "q", "operator": "Exists", "effect": "PreferNoSchedule"}], {"a": 100, "b": 0, "c": 0}),
        ([{"key": "q", "value": "1"}], {"a": 100, "b": 50, "c": 0}),
        ([{"operator": "Exists"}], {"a": 100, "b": 100, "c": 100}),
        # For another effect it is no toleration of these.
        ([{"key": "p", "operator": "Exists", "effect": "NoSchedule"}], {"a": 100, "b": 67, "c": 0}),
    ],
)
def test_the_fewer_untolerated_the_better(tolerations: list[dict[str, Any]], expected: dict[str, int]) -> None:
    assert scores("prefer-no-schedule", spec={"tolerations": tolerations}, nodes=_NODES) == expected


def test_only_nodes_that_fit_are_compared() -> None:
    assert scores("prefer-no-schedule", spec={}, nodes=_NODES, only="ab") == {"a": 100, "b": 0}


def test_where_no_node_has_one_nothing_is_said() -> None:
    assert scores("prefer-no-schedule", spec={}, nodes=(node("a", taints=[("p", "", "NoSchedule")]), node("b"))) == {}
