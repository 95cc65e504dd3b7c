"""PodDisruptionBudgets as values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.selectors import budget_record
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


@pytest.mark.parametrize(("values", "allowed", "takes_others"), [(999, 3, False), (1_000, 0, True)])
def test_a_budget_with_a_longer_selector_than_is_kept_lets_nobody_of_its_namespace_go(
    values: int, allowed: int, takes_others: bool
) -> None:
    asked = {"key": "app", "operator": "In", "values": [f"v{number}" for number in range(values)]}
    record = budget_record(
        budget({"selector": {"matchExpressions": [asked]}}, {"disruptionsAllowed": 3, "observedGeneration": 1})
    )
    assert record.allowed == allowed
    assert takes(record.selector, {"app": "other"}) is takes_others


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
