"""The order in which units go, and where it ends."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.preemption import Action
from scheduler.core.model.quota import Resources
from scheduler.core.preemption.budgets import Budgets
from scheduler.core.preemption.candidates import in_queue, permitted
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.reclaim import Rules
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_units import Resident
from scheduler.core.queues.accounts import Use
from tests.scheduler.core.objects import NANO, cluster, node, pod_group, queue
from tests.scheduler.core.preemption import one_by_one
from tests.scheduler.core.preemption.scenes import Scene, need_of, running, trial_of, waiting


def _rules(trial: Trial, need: Need, action: Action, claim: int = 1) -> Rules:
    leaf = trial.accounts.tree.find(need.queue)
    assert leaf is not None
    use = Use(need.queue, Resources(0, 0, claim * NANO))
    return Rules(action, trial.accounts, leaf, use, need.priority, trial.settings)


def _sequence(trial: Trial, rules: Rules) -> list[Resident]:
    table = trial.residents
    table.refresh(trial)
    able = table.is_filled()
    for row, unit in enumerate(table.residents):
        able[row] = unit is not None and rules.may_ask(unit.leaf) and rules.may_take(unit, {})
    found = [table.residents[row] for row in permitted(table, in_queue(table, able), rules).tolist()]
    return [unit for unit in found if unit is not None]


def _names(*objects: Any, action: Action = Action.RECLAIM) -> list[str]:
    made = cluster(node("n1", 32), queue("a", gpu=(32, 0, -1)), waiting("mine", "a", gpus=32, priority=70), *objects)
    trial = trial_of(made)
    units = _sequence(trial, _rules(trial, need_of(trial, "mine"), action))
    return ["+".join(uid.removeprefix("uid-") for uid in unit.unit.pods) for unit in units]


def test_in_one_queue_the_lowest_priority_goes_first_then_surplus_then_the_newest() -> None:
    pods = [
        running("old", "a", "n1", age_s=500),
        running("new", "a", "n1", age_s=400),
        running("high", "a", "n1", age_s=1, priority=60),
        pod_group("g", 1, queue="a"),
        *(running(f"m{at}", "a", "n1", age_s=9_000 - at, group="g") for at in range(3)),
    ]
    assert _names(*pods, action=Action.PREEMPT) == ["m2", "m1", "new", "old", "m0", "high"]


def _teams(*shares: tuple[float, float, float]) -> list[Any]:
    teams = [
        queue(name, gpu=share, created=f"2026-01-01T00:00:0{at}Z")
        for at, (name, share) in enumerate(zip("bc", shares, strict=True))
    ]
    return [*teams, *(running(f"{name}{at}", name, "n1", gpus=1, age_s=100 - at) for name in "bc" for at in range(3))]


def test_of_two_queues_the_one_that_has_more_of_its_share_goes_first_each_time() -> None:
    more = running("more", "c", "n1", gpus=2, age_s=10)
    assert _names(*_teams((1, 0, -1), (1, 0, -1)), more) == ["more", "c2", "b2", "c1", "b1"]


def test_no_more_is_taken_of_a_queue_than_what_is_above_its_share() -> None:
    assert _names(*_teams((2, 0, -1), (3, 0, -1))) == ["b2"]
    assert _names(*_teams((0, 0, -1), (3, 0, -1))) == ["b2", "b1", "b0"]


def test_of_a_department_no_more_is_taken_than_what_is_above_its_share() -> None:
    tree = [queue("d", gpu=(2, 0, -1)), *(queue(name, "d", gpu=(0, 1, -1)) for name in "bc")]
    pods = [running(f"{name}{at}", name, "n1", gpus=1, age_s=100 - at) for name in "bc" for at in range(2)]
    assert len(_names(*tree, *pods)) == 2


@given(st.integers(0, 1 << 32), st.sampled_from((Action.RECLAIM, Action.PREEMPT)), st.integers(1, 3))
def test_all_at_once_is_as_one_by_one(seed: int, action: Action, claim: int) -> None:
    trial = trial_of(Scene(seed, most_units=12).cluster())
    rules = _rules(trial, need_of(trial, "mine"), action, claim)
    found = _sequence(trial, rules)
    units = [unit for unit in trial.residents.residents if unit is not None and rules.may_ask(unit.leaf)]
    mark = trial.accounts.checkpoint()
    expected = list(one_by_one.permitted(one_by_one.by_queues(units, trial.accounts), rules, Budgets((), {})))
    trial.accounts.rollback(mark)
    assert [unit.unit for unit in found] == [unit.unit for unit in expected]
