"""Who may take from whom."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.preemption import Action, Respect, RoomSettings
from scheduler.core.model.quota import Resources
from scheduler.core.preemption.reclaim import Rules
from scheduler.core.preemption.victim_units import Resident, residents
from scheduler.core.queues.accounts import Use
from tests.scheduler.core.objects import NANO, cluster, node, queue
from tests.scheduler.core.preemption.scenes import Scene, need_of, running, trial_of, waiting


def _judged(
    *objects: Any,
    claim: int = 1,
    action: Action = Action.RECLAIM,
    taker: str = "a",
    priority: int = 50,
    milli: int = 1_000,
) -> tuple[Rules, dict[str, Resident]]:
    trial = trial_of(cluster(*objects))
    leaf = trial.accounts.tree.find(taker)
    assert leaf is not None
    use = Use(taker, Resources(0, 0, claim * NANO))
    rules = Rules(action, trial.accounts, leaf, use, priority, RoomSettings(multiplier_milli=milli))
    return rules, {unit.unit.pods[0].removeprefix("uid-"): unit for unit in residents(trial).units}


def _teams(*shares: tuple[float, float, float], held: int = 4, mine: int = 0) -> list[Any]:
    """Team ``a`` asks 8 GPUs and has some; ``b`` has 1-GPU pods ``x0`` and so on."""
    pods = [running(f"x{at}", "b", "n1", gpus=1) for at in range(held)]
    own = [running(f"own{at}", "a", "n1", gpus=1) for at in range(mine)]
    queues = [queue(name, gpu=share) for name, share in zip("ab", shares, strict=True)]
    return [node("n1", 8), *queues, *pods, *own, waiting("mine", "a", gpus=8)]


@pytest.mark.parametrize(("claim", "entitled"), [(4, True), (5, False)])
def test_a_taker_stays_within_its_own_fair_share(claim: int, entitled: bool) -> None:
    rules, _ = _judged(*_teams((4, 0, -1), (4, 0, -1)), claim=claim)
    assert rules.is_entitled() is entitled


@pytest.mark.parametrize(("milli_cpu", "entitled"), [(1_000, True), (1_001, False)])
def test_a_taker_stays_within_it_in_every_dimension(milli_cpu: int, entitled: bool) -> None:
    teams = [queue("a", gpu=(4, 0, -1), cpu=(1_000, 0, -1)), queue("b")]
    rules, _ = _judged(node("n1", 8), *teams, waiting("mine", "a", gpus=4, cpu="4"), claim=1)
    rules.claim = Use("a", Resources(milli_cpu, 0, NANO))
    assert rules.is_entitled() is entitled


def _taken(rules: Rules, units: dict[str, Resident]) -> list[str]:
    """Those that may be taken one after the other."""
    lost: dict[int, Resources] = {}
    found = list[str]()
    for name, unit in units.items():
        if rules.may_ask(unit.leaf) and rules.may_take(unit, lost):
            rules.take(unit, lost)
            found.append(name)
    return found


@pytest.mark.parametrize(
    ("mine", "theirs", "claim", "taken"),
    [
        ((4, 0, -1), (2, 0, -1), 1, 2),
        ((4, 0, -1), (0, 0, -1), 1, 4),
        ((4, 0, -1), (4, 0, -1), 1, 0),
        ((4, 0, -1), (-1, 0, 2), 1, 2),
        ((2, 1, -1), (2, 1, -1), 1, 2),
        ((2, 1, -1), (2, 1, -1), 2, 2),
        ((0, 1, -1), (2, 1, -1), 3, 0),
    ],
    ids=["above quota", "no quota", "within", "limit", "within own quota", "at own quota", "above own quota"],
)
def test_a_queue_gives_what_is_above_its_share_or_its_quota_for_who_is_within_its_own(
    mine: tuple[float, float, float], theirs: tuple[float, float, float], claim: int, taken: int
) -> None:
    assert len(_taken(*_judged(*_teams(mine, theirs), claim=claim))) == taken


def test_queues_are_compared_just_below_the_lowest_one_above_both() -> None:
    """Team b is above its own quota, and its department is not above its share."""
    tree = [queue("d1", gpu=(2, 0, -1)), queue("d2", gpu=(4, 0, -1)), queue("a", "d1", gpu=(2, 0, -1))]
    tree += [queue("b", "d2", gpu=(0, 1, -1)), queue("c", "d2", gpu=(4, 0, -1))]
    pods = [running(f"x{at}", "b", "n1", gpus=1) for at in range(4)]
    assert _taken(*_judged(node("n1", 8), *tree, *pods, waiting("mine", "a", gpus=8))) == []
    more = [*pods, running("x4", "c", "n1", gpus=1)]
    assert _taken(*_judged(node("n1", 8), *tree, *more, waiting("mine", "a", gpus=8))) == ["x0"]
    assert _taken(*_judged(node("n1", 8), *tree, *pods, waiting("w", "c", gpus=8), taker="c")) == [
        "x0",
        "x1",
        "x2",
        "x3",
    ]


@pytest.mark.parametrize(
    ("priority", "taken"), [(49, []), (50, ["low"]), (60, ["low", "mid"]), (70, ["low", "mid", "high"])]
)
def test_within_a_queue_only_a_lower_priority_goes(priority: int, taken: list[str]) -> None:
    pods = [running(name, "a", "n1", priority=at) for name, at in (("low", 49), ("mid", 59), ("high", 69))]
    found = _judged(node("n1"), queue("a"), *pods, action=Action.PREEMPT, priority=priority)
    assert _taken(*found) == taken


def test_reclaim_asks_other_queues_and_preemption_its_own() -> None:
    objects = [node("n1"), queue("a"), queue("b"), running("x", "a", "n1"), running("y", "b", "n1")]
    for action, name in ((Action.RECLAIM, "y"), (Action.PREEMPT, "x")):
        rules, units = _judged(*objects, action=action)
        assert [key for key, unit in units.items() if rules.may_ask(unit.leaf)] == [name]


def _departments(mine: int, theirs: int, milli: int = 1_000) -> bool:
    """Department d1 has ``mine`` of its share of 4 and takes one more of d2, which has ``theirs`` of its 4."""
    tree = [queue("d1", gpu=(4, 0, -1)), queue("d2", gpu=(4, 0, -1)), queue("a", "d1", gpu=(4, 0, -1))]
    tree += [queue("o", "d1", gpu=(0, 0, -1)), queue("b", "d2", gpu=(4, 0, -1))]
    pods = [running(f"o{at}", "o", "n1", gpus=1) for at in range(mine)]
    pods += [running(f"x{at}", "b", "n1", gpus=1) for at in range(theirs)]
    rules, units = _judged(node("n1", 32), *tree, *pods, waiting("mine", "a", gpus=8), milli=milli)
    lost: dict[int, Resources] = {}
    rules.take(units["x0"], lost)
    return rules.holds(lost)


@pytest.mark.parametrize(
    ("mine", "theirs", "holds"), [(3, 5, True), (4, 5, False), (4, 7, True), (5, 7, False), (3, 1, True)]
)
def test_afterwards_a_department_above_its_share_is_not_as_far_above_as_one_that_lost(
    mine: int, theirs: int, holds: bool
) -> None:
    assert _departments(mine, theirs) is holds


@pytest.mark.parametrize(("milli", "holds"), [(0, True), (1_000, True), (1_199, True), (1_200, False), (2_000, False)])
def test_the_multiplier_makes_a_takers_own_use_count_more(milli: int, holds: bool) -> None:
    assert _departments(4, 7, milli) is holds


def test_a_department_that_gives_to_itself_is_judged_with_what_it_lost() -> None:
    tree = [queue("d1", gpu=(4, 0, -1)), queue("a", "d1", gpu=(4, 0, -1)), queue("o", "d1", gpu=(0, 0, -1))]
    pods = [running(f"o{at}", "o", "n1", gpus=1) for at in range(8)]
    rules, units = _judged(node("n1", 8), queue("d2"), *tree, *pods, waiting("mine", "a", gpus=8))
    lost = rules.permit([units["o0"], units["o1"]])
    assert lost is not None
    assert rules.holds(lost)


@pytest.mark.parametrize(
    ("gpu", "cpu", "asked", "protects"),
    [
        ((8, 0, -1), (0, 0, -1), {"gpus": 4, "cpu": "8"}, True),
        ((3, 0, -1), (0, 0, -1), {"gpus": 4, "cpu": "8"}, False),
        ((0, 0, -1), (100_000, 0, -1), {"gpus": 4, "cpu": "8"}, False),
        ((8, 0, -1), (4_000, 0, -1), {"gpus": 4, "cpu": "8"}, False),
        ((8, 0, -1), (0, 0, -1), {"cpu": "8"}, False),
        ((0, 0, -1), (8_000, 0, -1), {"cpu": "8"}, True),
        ((0, 0, -1), (0, 0, -1), {"gpus": 4, "cpu": "8"}, False),
    ],
    ids=["within", "above", "no GPUs", "above its CPU", "no CPU for pods without GPUs", "CPU only", "no quota"],
)
def test_budgets_within_quota_pass_over_what_no_quota_divides(
    gpu: tuple[float, float, float], cpu: tuple[float, float, float], asked: dict[str, Any], protects: bool
) -> None:
    queues = [queue("a"), queue("b", gpu=gpu, cpu=cpu)]
    rules, units = _judged(node("n1", 8), *queues, running("x", "b", "n1", **asked))
    rules.settings = RoomSettings(budgets=Respect.WITHIN_QUOTA)
    assert rules.outgrows_budgets(units["x"], {}) is not protects


@given(st.integers(0, 1 << 32), st.data())
def test_leaving_some_out_of_a_permitted_sequence_leaves_it_permitted(seed: int, data: st.DataObject) -> None:
    trial = trial_of(Scene(seed).cluster())
    need = need_of(trial, "mine")
    leaf = trial.accounts.tree.find(need.queue)
    assert leaf is not None
    claim = Use(need.queue, Resources(0, 0, NANO))
    rules = Rules(Action.RECLAIM, trial.accounts, leaf, claim, need.priority, trial.settings)
    lost: dict[int, Resources] = {}
    sequence = list[Resident]()
    for unit in data.draw(st.permutations([unit for unit in residents(trial).units if rules.may_ask(unit.leaf)])):
        if rules.may_take(unit, lost):
            rules.take(unit, lost)
            sequence.append(unit)
    kept = [unit for unit in sequence if data.draw(st.booleans())]
    assert rules.permit(kept) is not None
