"""Which units a search chooses from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.core.model.preemption import Action, Budget, RoomSettings
from scheduler.core.model.quota import Resources
from scheduler.core.preemption.budgets import Budgets
from scheduler.core.preemption.candidates import by_budgets, by_size, of_low_priority
from scheduler.core.preemption.capacity import Counting
from scheduler.core.preemption.reclaim import Rules
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import tenants
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import TreeQueue
from tests.scheduler.core.objects import NANO, cluster, node, pod_group, queue
from tests.scheduler.core.preemption.scenes import need_of, running, trial_of, waiting


def _trial(*objects: Any, **given: Any) -> tuple[Trial, list[int]]:
    """Units by name."""
    made = cluster(node("n1", 8), queue("a", gpu=(8, 0, -1)), waiting("mine", "a", gpus=1), *objects)
    trial = trial_of(made, **given)
    trial.residents.refresh(trial)
    rows = {unit.pods[0].name: row for row, unit in enumerate(trial.residents.residents) if unit}
    return trial, [rows[name] for name in sorted(rows)]


def _names(trial: Trial, rows: Any) -> list[str]:
    units = [trial.residents.residents[row] for row in rows.tolist()]
    return [unit.unit.pods[0].removeprefix("uid-") for unit in units if unit]


def test_units_that_a_budget_does_not_allow_together_are_left_out_with_their_cores() -> None:
    gang = [pod_group("g", 1, queue="b"), *(running(f"m{at}", "b", "n1", age_s=99 - at, group="g") for at in range(2))]
    trial, rows = _trial(queue("b"), running("x", "b", "n1"), *gang)
    order = sorted(rows, key=lambda row: _names(trial, np.array([row]))[0] != "x")
    budget = Budget(namespace="ns", name="pdb", selector=(), allowed=1)
    labels: dict[str, dict[str, str]] = {f"uid-{name}": {} for name in ("x", "m0", "m1")}
    leaf = trial.accounts.tree.leaf("a")
    assert isinstance(leaf, TreeQueue)
    rules = Rules(Action.RECLAIM, trial.accounts, leaf, Use("a", Resources(0, 0, 0)), 50, RoomSettings())
    assert _names(trial, by_budgets(trial.residents, np.array(order), Budgets((budget,), labels), rules)) == ["x"]
    assert len(by_budgets(trial.residents, np.array(order), Budgets((), {}), rules)) == 3


@pytest.mark.parametrize(("needed", "pool"), [(1, ["low"]), (2, ["low", "mid"]), (3, ["low", "mid", "top"]), (9, 3)])
def test_a_pool_goes_up_to_the_lowest_priority_that_is_enough(needed: int, pool: Any) -> None:
    pods = [running(name, "b", "n1", gpus=1, priority=at) for name, at in (("low", 10), ("mid", 20), ("top", 30))]
    trial, rows = _trial(queue("b"), *pods, running("rest", "a", "n1", gpus=5))
    mine = np.array([row for row in rows if _names(trial, np.array([row])) != ["rest"]])
    (way,) = need_of(trial, "mine").pods[0].cls.ways()
    counting = Counting(trial, trial.residents, way, tenants(trial, trial.residents))
    pool_of = of_low_priority(trial.residents, mine, lambda units: counting.prefix(units, needed) is not None)
    found = _names(trial, pool_of)
    assert (found if isinstance(pool, list) else len(found)) == pool


def test_the_smallest_or_the_largest_goes_first_as_long_as_the_queue_has_more_than_its_share() -> None:
    pods = [running(f"x{gpus}", "b", "n1", gpus=gpus) for gpus in (3, 1, 2)]
    trial, _ = _trial(queue("b", gpu=(4, 0, -1)), *pods, waiting("more", "a", gpus=8))
    leaf = trial.accounts.tree.find("a")
    assert leaf is not None
    rules = Rules(Action.RECLAIM, trial.accounts, leaf, Use("a", Resources(0, 0, NANO)), 50, trial.settings)
    able = trial.residents.is_filled()
    assert _names(trial, by_size(trial.residents, able, rules)) == ["x1", "x2"]
    assert _names(trial, by_size(trial.residents, able, rules, largest_first=True)) == ["x3"]
