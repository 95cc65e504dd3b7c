"""PodDisruptionBudgets as values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.budgets import budget_record
from scheduler.core.filters.pod_terms import takes
from wire.policy import PodDisruptionBudget


def budget(spec: dict[str, Any], status: dict[str, Any], generation: int = 1) -> PodDisruptionBudget:
    meta = {"namespace": "team", "name": "b", "generation": generation}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, PodDisruptionBudget)


@pytest.mark.parametrize(
    ("spec", "selects"),
    [
        ({}, False),
        ({"selector": {}}, True),
        ({"selector": {"matchLabels": {"app": "a"}}}, True),
        ({"selector": {"matchLabels": {"app": "b"}}}, False),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}}, False),
    ],
)
def test_a_budget_is_for_the_pods_that_its_selector_takes(spec: dict[str, Any], selects: bool) -> None:
    record = budget_record(budget(spec, {}))
    assert takes(record.selector, {"app": "a"}) is selects
    assert record.key == ("team", "b")


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"disruptionsAllowed": 3, "observedGeneration": 2}, 3),
        ({"disruptionsAllowed": 3, "observedGeneration": 1}, 0),  # not counted since its last change
        ({"disruptionsAllowed": 3}, 0),
        ({"disruptionsAllowed": -1, "observedGeneration": 2}, 0),
        ({}, 0),
    ],
)
def test_a_budget_allows_what_its_controller_has_counted(status: dict[str, Any], allowed: int) -> None:
    assert budget_record(budget({"selector": {}}, status, generation=2)).allowed == allowed
