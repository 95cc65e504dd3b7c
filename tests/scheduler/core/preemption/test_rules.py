"""Who may take from whom: rules, limits, permits, pools and the order in which units go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.preemption import Action, Budget, PreemptionSettings, Respect
from scheduler.core.model.quota import Resources
from scheduler.core.preemption.candidates import by_budgets, by_size, in_queue, of_low_priority, permitted
from scheduler.core.preemption.capacity import Counting
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.protection import Budgets
from scheduler.core.preemption.reclaim import NOBODY, Limits, Permits, Rules
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import tenants
from scheduler.core.preemption.victim_units import Resident, residents
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import TreeQueue
from tests.scheduler.core.objects import NANO, cluster, node, pod_group, queue
from tests.scheduler.core.preemption import one_by_one
from tests.scheduler.core.preemption.scenes import Scene, need_of, running, trial_of, waiting
from tests.values import of_kind, there

# Who may take from whom.


def _judged(
    *objects: Any,
    claim: int = 1,
    action: Action = Action.RECLAIM,
    taker: str = "a",
    priority: int = 50,
    milli: int = 1_000,
) -> tuple[Rules, dict[str, Resident]]:
    trial = trial_of(cluster(*objects))
    leaf = there(trial.accounts.tree.find(taker))
    use = Use(taker, Resources(0, 0, claim * NANO))
    rules = Rules(action, trial.accounts, leaf, use, priority, PreemptionSettings(saturation_multiplier_milli=milli))
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
    lost = there(rules.permit([units["o0"], units["o1"]]))
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
    rules.settings = PreemptionSettings(disruption_budgets=Respect.WITHIN_QUOTA)
    assert rules.outgrows_budgets(units["x"], {}) is not protects


@given(st.integers(0, 1 << 32), st.data())
def test_leaving_some_out_of_a_permitted_sequence_leaves_it_permitted(seed: int, data: st.DataObject) -> None:
    trial = trial_of(Scene(seed).cluster())
    need = need_of(trial, "mine")
    leaf = there(trial.accounts.tree.find(need.queue))
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


# What has to be freed of queues' limits.

_TREE = (queue("top", gpu=(0, 1, 4)), queue("a", "top", gpu=(0, 1, 3)), queue("b", "top", gpu=(0, 1, -1)))


@pytest.mark.parametrize(
    ("claim", "prefix"), [(0, 0), (1, 2), (2, 3), (3, None)], ids=["nothing", "department", "own", "too much"]
)
def test_as_many_go_as_limits_on_the_way_up_need(claim: int, prefix: int | None) -> None:
    """Team a has 2 of its 3, and its department 4 of its 4."""
    pods = [running("cpu", "b", "n1", cpu="1"), running("b1", "b", "n1", gpus=2), running("a1", "a", "n1", gpus=2)]
    trial = trial_of(cluster(node("n1", 8), *_TREE, *pods))
    units = {unit.pods[0].name: unit for unit in residents(trial).units}
    leaf = there(trial.accounts.tree.find("a"))
    limits = Limits(trial.accounts, leaf, Resources(0, 0, claim * NANO))
    order = [units[name] for name in ("cpu", "b1", "a1")]
    assert limits.prefix(order if prefix is not None else order[:2]) == prefix
    assert limits.are_met() is (claim == 0)


def test_a_unit_helps_where_something_is_short_that_it_has() -> None:
    pods = [running("cpu", "b", "n1", cpu="1"), running("b1", "b", "n1", gpus=4), running("a1", "a", "n1", cpu="1")]
    trial = trial_of(cluster(node("n1", 8), *_TREE, *pods))
    leaf = there(trial.accounts.tree.find("a"))
    limits = Limits(trial.accounts, leaf, Resources(0, 0, NANO))
    units = {unit.pods[0].name: unit for unit in residents(trial).units}
    assert [name for name, unit in units.items() if limits.helps(unit)] == ["b1"]
    limits.take(units["b1"])
    assert limits.are_met()
    limits.take(units["cpu"])
    assert not limits.are_met_without(units["b1"])
    assert limits.are_met_without(units["cpu"])


# The order in which units go, and where it ends.


def _rules(trial: Trial, need: Need, action: Action, claim: int = 1) -> Rules:
    leaf = there(trial.accounts.tree.find(need.queue))
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


def _sequence_teams(*shares: tuple[float, float, float]) -> list[Any]:
    teams = [
        queue(name, gpu=share, created=f"2026-01-01T00:00:0{at}Z")
        for at, (name, share) in enumerate(zip("bc", shares, strict=True))
    ]
    return [*teams, *(running(f"{name}{at}", name, "n1", gpus=1, age_s=100 - at) for name in "bc" for at in range(3))]


def test_of_two_queues_the_one_that_has_more_of_its_share_goes_first_each_time() -> None:
    more = running("more", "c", "n1", gpus=2, age_s=10)
    assert _names(*_sequence_teams((1, 0, -1), (1, 0, -1)), more) == ["more", "c2", "b2", "c1", "b1"]


def test_no_more_is_taken_of_a_queue_than_what_is_above_its_share() -> None:
    assert _names(*_sequence_teams((2, 0, -1), (3, 0, -1))) == ["b2"]
    assert _names(*_sequence_teams((0, 0, -1), (3, 0, -1))) == ["b2", "b1", "b0"]


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


# Units are judged once, after those that were judged before.


def _permits(allowed: int, **settings: Any) -> tuple[Permits, list[int]]:
    """Five pods of a queue that has two more GPUs than its share, all under one budget."""
    pods = [running(f"p{at}", "b", "n1", gpus=1) for at in range(5)]
    made = cluster(
        node("n1", 6), queue("a", gpu=(3, 1, -1)), queue("b", gpu=(3, 1, -1)), *pods, waiting("m", "a", gpus=2)
    )
    labels = {f"uid-{pod.metadata.name}": {"x": "y"} for pod in pods}
    trial = trial_of(made, budgets=(Budget(namespace="ns", name="b", selector=(), allowed=allowed),), labels=labels)
    trial.residents.refresh(trial)
    leaf = of_kind(TreeQueue, trial.accounts.tree.leaf("a"))
    use = Use("a", Resources(0, 0, 2 * NANO), False)
    rules = Rules(Action.RECLAIM, trial.accounts, leaf, use, 50, PreemptionSettings(**settings))
    return Permits(trial.residents, rules, trial.counted), [trial.residents.row_of[f"uid-p{at}"] for at in range(5)]


@pytest.mark.parametrize(("allowed", "go"), [(9, 2), (1, 1), (0, 0)], ids=["by its queue", "by the budget", "none"])
def test_as_many_go_one_by_one_as_all_at_once(allowed: int, go: int) -> None:
    permits, rows = _permits(allowed)
    for count in range(5):
        at_once = permits.go(rows[:count])
        assert (at_once is not None) is (count <= go)
        for first in range(count):
            before = permits.go(rows[:first])
            assert before is None or permits.go(rows[first:count], before) == at_once


@pytest.mark.parametrize(
    ("settings", "go"),
    [
        ({}, 0),
        ({"disruption_budgets": Respect.WITHIN_QUOTA}, 2),  # three of five are within the quota
        ({"disruption_budgets": Respect.SHARE, "disruption_budgets_percent": 80}, 1),
        ({"disruption_budgets": Respect.SHARE, "disruption_budgets_percent": 100}, 0),
        ({"disruption_budgets": Respect.SHARE, "disruption_budgets_percent": 0}, 2),  # its share bounds what may go
    ],
)
def test_budgets_protect_so_much_of_a_queue_as_the_administrator_says(settings: dict[str, Any], go: int) -> None:
    permits, rows = _permits(0, **settings)
    assert [permits.go(rows[:count]) is not None for count in range(4)] == [count <= go for count in range(4)]
    assert permits.go(rows[go : go + 1], permits.go(rows[:go]) or NOBODY) is None
    chosen = by_budgets(permits.table, np.array(rows), permits.budgets, permits.rules)
    assert len(chosen) == go or settings.get("disruption_budgets_percent") == 0


def test_who_stays_gives_nothing_back_of_a_budget_that_did_not_count() -> None:
    permits, rows = _permits(1, disruption_budgets=Respect.WITHIN_QUOTA)
    gone = there(permits.go(rows[:2]))
    assert permits.back(rows[0], gone).taken == Counter()


def test_what_goes_takes_of_queues_and_budgets() -> None:
    permits, rows = _permits(9)
    gone = there(permits.go(rows[:2]))
    assert gone.taken == Counter({0: 2})
    assert {lost.gpu_nano for lost in gone.lost.values()} == {2 * NANO}


def test_who_stays_after_all_leaves_what_the_others_take() -> None:
    permits, rows = _permits(9)
    gone = there(permits.go(rows[:2]))
    left, alone = permits.back(rows[0], gone), there(permits.go(rows[1:2]))
    assert (left.lost, +left.taken) == (alone.lost, alone.taken)


# Which units a search chooses from.


def _trial(*objects: Any, **given: Any) -> tuple[Trial, list[int]]:
    """Units by name."""
    made = cluster(node("n1", 8), queue("a", gpu=(8, 0, -1)), waiting("mine", "a", gpus=1), *objects)
    trial = trial_of(made, **given)
    trial.residents.refresh(trial)
    rows = {unit.pods[0].name: row for row, unit in enumerate(trial.residents.residents) if unit}
    return trial, [rows[name] for name in sorted(rows)]


def _pools_names(trial: Trial, rows: Any) -> list[str]:
    units = [trial.residents.residents[row] for row in rows.tolist()]
    return [unit.unit.pods[0].removeprefix("uid-") for unit in units if unit]


def test_units_that_a_budget_does_not_allow_together_are_left_out_with_their_cores() -> None:
    gang = [pod_group("g", 1, queue="b"), *(running(f"m{at}", "b", "n1", age_s=99 - at, group="g") for at in range(2))]
    trial, rows = _trial(queue("b"), running("x", "b", "n1"), *gang)
    order = sorted(rows, key=lambda row: _pools_names(trial, np.array([row]))[0] != "x")
    budget = Budget(namespace="ns", name="pdb", selector=(), allowed=1)
    labels: dict[str, dict[str, str]] = {f"uid-{name}": {} for name in ("x", "m0", "m1")}
    leaf = of_kind(TreeQueue, trial.accounts.tree.leaf("a"))
    rules = Rules(Action.RECLAIM, trial.accounts, leaf, Use("a", Resources(0, 0, 0)), 50, PreemptionSettings())
    assert _pools_names(trial, by_budgets(trial.residents, np.array(order), Budgets((budget,), labels), rules)) == ["x"]
    assert len(by_budgets(trial.residents, np.array(order), Budgets((), {}), rules)) == 3


@pytest.mark.parametrize(("needed", "pool"), [(1, ["low"]), (2, ["low", "mid"]), (3, ["low", "mid", "top"]), (9, 3)])
def test_a_pool_goes_up_to_the_lowest_priority_that_is_enough(needed: int, pool: Any) -> None:
    pods = [running(name, "b", "n1", gpus=1, priority=at) for name, at in (("low", 10), ("mid", 20), ("top", 30))]
    trial, rows = _trial(queue("b"), *pods, running("rest", "a", "n1", gpus=5))
    mine = np.array([row for row in rows if _pools_names(trial, np.array([row])) != ["rest"]])
    (way,) = need_of(trial, "mine").pods[0].cls.ways()
    counting = Counting(trial, trial.residents, way, tenants(trial, trial.residents))
    pool_of = of_low_priority(trial.residents, mine, lambda units: counting.prefix(units, needed) is not None)
    found = _pools_names(trial, pool_of)
    assert (found if isinstance(pool, list) else len(found)) == pool


def test_the_smallest_or_the_largest_goes_first_as_long_as_the_queue_has_more_than_its_share() -> None:
    pods = [running(f"x{gpus}", "b", "n1", gpus=gpus) for gpus in (3, 1, 2)]
    trial, _ = _trial(queue("b", gpu=(4, 0, -1)), *pods, waiting("more", "a", gpus=8))
    leaf = there(trial.accounts.tree.find("a"))
    rules = Rules(Action.RECLAIM, trial.accounts, leaf, Use("a", Resources(0, 0, NANO)), 50, trial.settings)
    able = trial.residents.is_filled()
    assert _pools_names(trial, by_size(trial.residents, able, rules)) == ["x1", "x2"]
    assert _pools_names(trial, by_size(trial.residents, able, rules, largest_first=True)) == ["x3"]
