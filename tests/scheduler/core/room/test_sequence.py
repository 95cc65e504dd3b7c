"""The orders in which units go."""

from __future__ import annotations

from typing import Any

from scheduler.core.model.resources import Resources
from scheduler.core.model.room import Action, Budget, RoomSettings
from scheduler.core.queues.accounts import Use
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.rules import Rules
from scheduler.core.room.sequence import by_queues, by_size, in_queue, permitted
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident, residents
from tests.scheduler.core.objects import NANO, cluster, node, pod_group, queue
from tests.scheduler.core.room.scenes import running, trial_of, waiting


def _trial(*objects: Any) -> Trial:
    return trial_of(cluster(node("n1", 32), queue("a", gpu=(4, 1, -1)), *objects))


def _names(units: Any) -> list[str]:
    return ["+".join(uid.removeprefix("uid-") for uid in unit.unit.pods) for unit in units]


def test_in_one_queue_the_lowest_priority_goes_first_then_surplus_then_the_newest() -> None:
    trial = _trial(
        running("old", "a", "n1", age_s=500),
        running("new", "a", "n1", age_s=400),
        running("high", "a", "n1", age_s=1, priority=60),
        pod_group("g", 1, queue="a"),
        *(running(f"m{at}", "a", "n1", age_s=9_000 - at, group="g") for at in range(3)),
    )
    assert _names(in_queue(residents(trial).units)) == ["m2", "m1", "new", "old", "m0", "high"]


def _queues(*more: Any) -> list[Any]:
    teams = [queue(name, gpu=(1, 0, -1), created=f"2026-01-01T00:00:0{at}Z") for at, name in enumerate("bc")]
    pods = [running(f"{name}{at}", name, "n1", gpus=1, age_s=100 - at) for name in "bc" for at in range(2)]
    return [*teams, *pods, *more]


def test_of_two_queues_the_one_that_has_more_of_its_share_goes_first_each_time() -> None:
    trial = _trial(*_queues(running("more", "c", "n1", gpus=2, age_s=10)), waiting("mine", "a", gpus=28))
    mark = trial.accounts.checkpoint()
    order = _names(by_queues(residents(trial).units, trial.accounts))
    assert trial.accounts.of[1].kept == Resources()
    trial.accounts.rollback(mark)
    assert order == ["more", "c1", "b1", "c0", "b0"]


def test_the_smallest_goes_first_and_a_core_after_its_surplus() -> None:
    trial = _trial(
        running("two", "a", "n1", gpus=2),
        running("one", "a", "n1", gpus=1),
        running("cpu", "a", "n1", cpu="1"),
        pod_group("g", 1, queue="a"),
        running("m0", "a", "n1", gpus=1, group="g", age_s=9_000),
        running("m1", "a", "n1", gpus=3, group="g"),
    )
    assert _names(by_size(residents(trial).units)) == ["cpu", "one", "two", "m1", "m0"]


def _permitted(trial: Trial, units: list[Resident], *budgets: Budget, labels: Any = None) -> list[str]:
    leaf = trial.accounts.tree.find("a")
    assert leaf is not None
    claim = Use("a", Resources(0, 0, NANO))
    rules = Rules(Action.RECLAIM, trial.accounts, leaf, claim, 50, RoomSettings())
    return _names(permitted(units, rules, Budgets(budgets, labels or {})))


def test_no_more_is_taken_of_a_queue_than_what_is_above_its_share() -> None:
    trial = _trial(*_queues(), waiting("mine", "a", gpus=28))
    units = sorted(residents(trial).units, key=lambda unit: unit.unit.pods)
    assert _permitted(trial, units) == ["b0", "c0"]


def test_no_more_is_taken_than_a_budget_has() -> None:
    trial = _trial(*_queues(), waiting("mine", "a", gpus=28))
    units = sorted(residents(trial).units, key=lambda unit: unit.unit.pods)
    labels: dict[str, dict[str, str]] = {uid: {} for unit in units for uid in unit.unit.pods}
    budget = Budget(namespace="ns", name="pdb", selector=(), allowed=1)
    assert _permitted(trial, units, budget, labels=labels) == ["b0"]


def test_a_core_does_not_go_if_its_surplus_may_not() -> None:
    gang = [pod_group("g", 1, queue="b"), *(running(f"m{at}", "b", "n1", gpus=1, group="g") for at in range(2))]
    trial = _trial(queue("b", gpu=(0, 1, -1)), *gang, waiting("mine", "a", gpus=32))
    surplus, core = residents(trial).units
    assert _permitted(trial, [core, surplus]) == _names([surplus])
    assert _permitted(trial, [surplus, core]) == _names([surplus, core])
