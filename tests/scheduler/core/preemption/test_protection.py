"""What protects pods: minimum runtimes, budgets and cost, and what keeps a pod from being taken."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from scheduler.core.model.pod_class import PodClass, Requirement
from scheduler.core.model.preemption import Action, Budget, Evicted, Kept, KeptPods, Method, PreemptionSettings
from scheduler.core.model.quota import NOTHING, WITHOUT_END, QueueRecord, Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.preemption.candidates import Candidates, Sieve
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.protection import (
    Budgets,
    delayed_until_s,
    has_run_at_s,
    minimum_ns,
    parting,
    protected_until_s,
)
from scheduler.core.preemption.reclaim import Rules
from scheduler.core.preemption.victim_units import Cost, Pricing, Resident, residents
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import Tree, TreeQueue
from tests.scheduler.core.objects import NANO, cluster, node, pod_group, queue
from tests.scheduler.core.preemption.scenes import NOON_S, need_of, running, trial_of, waiting
from tests.values import there

# Minimum runtimes, evictions not long ago, and the taker's own delay.

_S = 10**9


def _tree(**said_s: int) -> Tree:
    """``x_reclaim=5``: queue x says so."""
    parents = {"top": "", "dept": "top", "a": "dept", "b": "dept", "other": "top", "c": "other"}

    def record(name: str, parent: str) -> QueueRecord:
        preempt, reclaim = said_s.get(f"{name}_preempt"), said_s.get(f"{name}_reclaim")
        return QueueRecord(
            name=name,
            parent=parent,
            quota=WITHOUT_END,
            preempt_min_runtime_ns=None if preempt is None else preempt * _S,
            reclaim_min_runtime_ns=None if reclaim is None else reclaim * _S,
        )

    return Tree(record(name, parent) for name, parent in parents.items())


def _leaf(tree: Tree, name: str) -> TreeQueue:
    return there(tree.find(name))


@pytest.mark.parametrize(
    ("said", "victim", "lca_s", "queue_s"),
    [
        ({}, "c", 7, 7),
        ({"top_reclaim": 1}, "c", 1, 1),
        ({"top_reclaim": 1, "other_reclaim": 2}, "c", 2, 2),
        ({"top_reclaim": 1, "other_reclaim": 2, "c_reclaim": 3}, "c", 2, 3),
        ({"c_reclaim": 3}, "c", 7, 3),
        ({"b_reclaim": 3, "dept_reclaim": 2}, "b", 3, 3),
        ({"other_reclaim": 0, "top_reclaim": 1}, "c", 0, 0),
        ({"c_preempt": 3}, "c", 7, 7),
    ],
)
def test_other_queues_wait_as_long_as_the_first_queue_says(
    said: dict[str, int], victim: str, lca_s: int, queue_s: int
) -> None:
    tree = _tree(**said)
    found = [
        minimum_ns(
            tree,
            Action.RECLAIM,
            PreemptionSettings(
                reclaim_min_runtime_ns=7 * _S, preempt_min_runtime_ns=9 * _S, reclaim_resolve_method=method
            ),
            taker=_leaf(tree, "a"),
            victim=_leaf(tree, victim),
        )
        for method in (Method.LCA, Method.QUEUE)
    ]
    assert found == [lca_s * _S, queue_s * _S]


@pytest.mark.parametrize(
    ("said", "seconds"), [({}, 9), ({"top_preempt": 1}, 1), ({"a_preempt": 3, "top_preempt": 1, "a_reclaim": 8}, 3)]
)
def test_a_queue_says_itself_how_long_its_own_are_left_alone(said: dict[str, int], seconds: int) -> None:
    tree = _tree(**said)
    settings = PreemptionSettings(reclaim_min_runtime_ns=7 * _S, preempt_min_runtime_ns=9 * _S)
    taker = _leaf(tree, "a")
    assert minimum_ns(tree, Action.PREEMPT, settings, taker=taker, victim=taker) == seconds * _S


def test_queues_part_just_below_the_lowest_one_above_both() -> None:
    tree = _tree()
    found = parting(_leaf(tree, "a"), _leaf(tree, "c")), parting(_leaf(tree, "a"), _leaf(tree, "b"))
    assert [[tree.queues[number].name for number in each] for each in found] == [["dept", "other"], ["a", "b"]]


@pytest.mark.parametrize(
    ("started_s", "minimum", "until_s"),
    [(90, 10 * _S, 0), (91, 10 * _S, 101), (91, 10 * _S + 1, 102), (0, 10 * _S, 110), (500, _S, 101), (99, 0, 0)],
    ids=["it has", "not yet", "a nanosecond more", "start unknown", "a clock ahead", "no minimum"],
)
def test_a_minimum_runtime_counts_from_the_start(started_s: int, minimum: int, until_s: int) -> None:
    assert has_run_at_s(started_s, minimum, 100) == until_s


@pytest.mark.parametrize(
    ("times", "gap_s"), [(0, 0), (1, 30), (2, 60), (3, 120), (5, 480), (6, 600), (50, 600), (5_000, 600)]
)
def test_each_eviction_protects_twice_as_long_as_the_last_up_to_ten_minutes(times: int, gap_s: int) -> None:
    assert protected_until_s(Evicted(times, 1_000), 500, 1_000) == (1_000 + gap_s if gap_s else 0)
    assert protected_until_s(Evicted(times, 1_000), 1_005, 1_010) == (1_005 + gap_s if gap_s else 0)
    assert protected_until_s(Evicted(times, 1_000), 500, 1_000 + gap_s) == 0
    assert protected_until_s(None, 500, 1_000) == 0


@given(st.lists(st.integers(0, 900), max_size=60))
def test_nobody_is_evicted_more_than_ten_times_in_any_hour(waits: list[int]) -> None:
    """Whatever tries, and when: each time as soon as it may, or later."""
    times, now_s = list[int](), 10_000
    for wait_s in waits:
        now_s += wait_s
        hour = [at for at in times if at > now_s - 3_600]
        until_s = protected_until_s(Evicted(len(hour), hour[-1]) if hour else None, 1, now_s)
        now_s = until_s or now_s
        times.append(now_s)
    assert all(sum(at <= other < at + 3_600 for other in times) <= 10 for at in times)


@pytest.mark.parametrize(
    ("delay_s", "created", "evicted", "until_s"),
    [
        (60, "2026-01-01T11:59:30Z", None, NOON_S + 30),
        (60, "2026-01-01T11:59:00Z", None, 0),
        (60, "2026-01-01T11:00:00Z", Evicted(1, NOON_S - 10), NOON_S + 50),
        (0, "2026-01-01T12:00:00Z", None, 0),
        (60, "", None, 0),
    ],
    ids=["young", "old", "evicted just now", "no delay", "no time"],
)
def test_a_delay_counts_from_creation_or_the_last_eviction(
    delay_s: int, created: str, evicted: Evicted | None, until_s: int
) -> None:
    trial = trial_of(cluster(waiting("mine", "a"), queue("a")))
    pods = need_of(trial, "mine").pods
    need = Need(pods=pods, queue="a", priority=0, created=created, delay_ns=delay_s * _S)
    assert delayed_until_s(need, evicted, NOON_S) == until_s


def test_the_age_of_a_pod_counts_from_when_its_node_took_it_up() -> None:
    found = residents(trial_of(cluster(node("n1"), queue("a"), running("p", "a", "n1", age_s=50)))).units
    assert [unit.started_s for unit in found] == [NOON_S - 50]


# What keeps pods from being taken, and how that is counted.


def _sifted(*objects: Any, action: Action = Action.RECLAIM, **given: Any) -> tuple[Candidates, list[tuple[str, ...]]]:
    made = cluster(node("n1", 8), queue("a", gpu=(8, 0, -1)), waiting("mine", "a", gpus=8), *objects)
    trial = trial_of(made, **given)
    leaf = there(trial.accounts.tree.find("a"))
    rules = Rules(action, trial.accounts, leaf, Use("a", Resources(0, 0, NANO)), 60, trial.settings)
    trial.residents.refresh(trial)
    candidates = Sieve(trial, rules, Budgets(trial.budgets, trial.labels), trial.residents).find_candidates()
    able = [trial.residents.residents[row] for row in np.flatnonzero(candidates.able).tolist()]
    return candidates, [unit.unit.pods for unit in able if unit is not None]


_B = queue("b", gpu=(0, 0, -1))


@pytest.mark.parametrize(
    ("kept", "objects", "given"),
    [
        (None, [_B], {}),
        (KeptPods(Kept.IN_SHARE, 1, 2 * NANO), [queue("b", gpu=(2, 0, -1))], {}),
        (
            KeptPods(Kept.MIN_RUNTIME, 1, 2 * NANO, NOON_S + 10),
            [_B],
            {"settings": PreemptionSettings(reclaim_min_runtime_ns=3_610 * _S)},
        ),
        (KeptPods(Kept.PROTECTED, 1, 2 * NANO, NOON_S + 29), [_B], {"evicted": {"uid-x": Evicted(1, NOON_S - 1)}}),
        (
            KeptPods(Kept.BUDGET, 1, 2 * NANO),
            [_B],
            {"budgets": (Budget(namespace="ns", name="pdb", selector=(), allowed=0),), "labels": {"uid-x": {}}},
        ),
        (KeptPods(Kept.BUSY, 1, 2 * NANO), [_B], {"taken": {"uid-x"}}),
    ],
    ids=["nothing", "share", "min runtime", "evicted", "budget", "taken"],
)
def test_what_keeps_a_pod_of_another_queue_is_told(kept: KeptPods | None, objects: list[Any], given: Any) -> None:
    candidates, able = _sifted(*objects, running("x", "b", "n1", gpus=2), **given)
    assert list(candidates.kept.values()) == ([kept] if kept else [])
    assert len(able) == (kept is None)


def test_what_keeps_a_pod_of_the_same_queue_is_told() -> None:
    candidates, able = _sifted(
        running("x", "a", "n1", gpus=1, priority=60),
        running("y", "a", "n1", gpus=1, priority=59),
        running("z", "a", "n1", gpus=1, priority=100),
        action=Action.PREEMPT,
    )
    assert able == [("uid-y",)]
    assert set(candidates.kept.values()) == {KeptPods(Kept.NOT_PREEMPTIBLE, 1, NANO), KeptPods(Kept.PRIORITY, 1, NANO)}


def test_pods_are_added_up_and_the_first_time_counts() -> None:
    pods = [running(f"x{at}", "b", "n1", gpus=1, age_s=100 * at) for at in range(1, 4)]
    candidates, _ = _sifted(_B, *pods, settings=PreemptionSettings(reclaim_min_runtime_ns=1_000 * _S))
    assert candidates.kept == {Kept.MIN_RUNTIME: KeptPods(Kept.MIN_RUNTIME, 3, 3 * NANO, NOON_S + 700)}


def test_a_core_stays_with_surplus_that_a_budget_keeps() -> None:
    gang = [pod_group("g", 1, queue="b"), *(running(f"m{at}", "b", "n1", age_s=99 - at, group="g") for at in range(2))]
    budget = Budget(namespace="ns", name="pdb", selector=(), allowed=0)
    elsewhere = {"uid-m0": {}, "uid-m1": {"app": "x"}}
    candidates, able = _sifted(
        queue("b", gpu=(0, 0, -1)), *gang, running("p", "b", "n1", gpus=1), budgets=(budget,), labels=elsewhere
    )
    assert not able
    assert candidates.kept[Kept.BUDGET].pods == 3


# What victims cost.

_TOTAL = Resources(64_000, 512, 8 * NANO)


@pytest.mark.parametrize(
    ("amounts", "total", "weight"),
    [
        (Resources(0, 0, NANO), _TOTAL, NANO),
        (Resources(32_000, 0, NANO), _TOTAL, 4 * NANO),
        (Resources(0, 128, NANO // 2), _TOTAL, 2 * NANO),
        (Resources(16_000, 0, 0), Resources(64_000, 512, 0), NANO // 4),
        (Resources(1, 1, 0), NOTHING, 0),
    ],
    ids=["gpu", "cpu", "memory", "no gpus", "nothing to divide"],
)
def test_a_pod_weighs_as_much_as_the_largest_part_it_has_of_anything(
    amounts: Resources, total: Resources, weight: int
) -> None:
    assert Pricing(total, NOON_S).weight_nano(amounts) == weight


def _residents(*objects: Any) -> list[Resident]:
    return residents(trial_of(cluster(node("n1", 8), queue("a", gpu=(-1, 1, -1)), *objects))).units


def test_what_is_lost_is_weight_times_time() -> None:
    units = _residents(running("p", "a", "n1", gpus=2, age_s=100, priority=7), running("q", "a", "n1", gpus=1, age_s=5))
    pricing = Pricing(_TOTAL, NOON_S)
    assert [pricing.loss(unit) for unit in units] == [200 * NANO, 5 * NANO]
    assert pricing.cost(units) == Cost(7, 205 * NANO, 2, ("uid-p", "uid-q"))
    assert pricing.cost([]) < pricing.cost(units[1:])


@pytest.mark.parametrize("before_s", [100, 1_000], ids=["just begun", "a clock that went back"])
def test_work_costs_a_second_at_least_and_is_never_a_gain(before_s: int) -> None:
    (unit,) = _residents(running("p", "a", "n1", gpus=2, age_s=100))
    assert Pricing(_TOTAL, NOON_S - before_s).loss(unit) == 2 * NANO


def test_a_higher_priority_is_dearer_than_any_loss() -> None:
    high, low = _residents(
        running("p", "a", "n1", gpus=1, age_s=0, priority=8), running("q", "a", "n1", gpus=4, age_s=9_000, priority=7)
    )
    pricing = Pricing(_TOTAL, NOON_S)
    assert pricing.cost([low]) < pricing.cost([high])


# PodDisruptionBudgets, counted before anybody is evicted.

_WEB = (Requirement("app", "In", ("web",)),)


def _budget(selector: tuple[Requirement, ...] | None = _WEB, allowed: int = 1, namespace: str = "ns") -> Budget:
    return Budget(namespace=namespace, name="pdb", selector=selector, allowed=allowed)


def _pods(count: int) -> list[PodRecord]:
    return [PodRecord(uid=f"u{at}", namespace="ns", name="p", rv="", node="n", cls=PodClass()) for at in range(count)]


_LABELS = {f"u{at}": {"app": "web", "tier": "x"} for at in range(4)}


@pytest.mark.parametrize(
    ("budgets", "pods", "taken"),
    [
        ([], 3, {}),
        ([_budget(allowed=3)], 3, {0: 3}),
        ([_budget(allowed=2)], 3, None),
        ([_budget(allowed=-1)], 1, None),
        ([_budget(namespace="other", allowed=0)], 3, {}),
        ([_budget(selector=None, allowed=0)], 3, {}),
        ([_budget(selector=(), allowed=3)], 3, {0: 3}),
        ([_budget(selector=(Requirement("app", "In", ("db",)),), allowed=0)], 3, {}),
        ([_budget(allowed=9), _budget(selector=(), allowed=9)], 1, None),
        ([_budget(namespace="other", allowed=0), _budget(allowed=1)], 1, {1: 1}),
    ],
    ids=[
        "none",
        "enough",
        "too few",
        "below zero",
        "elsewhere",
        "selects nothing",
        "selects all",
        "others",
        "two",
        "2nd",
    ],
)
def test_each_pod_takes_one_of_the_budget_that_selects_it(
    budgets: list[Budget], pods: int, taken: dict[int, int] | None
) -> None:
    assert Budgets(budgets, _LABELS).takes(_pods(pods)) == (None if taken is None else Counter(taken))


def test_a_pod_whose_labels_are_not_known_is_nobodys_victim_where_there_is_a_budget() -> None:
    assert Budgets([_budget(allowed=9)], {}).takes(_pods(1)) is None
    assert Budgets([_budget(namespace="other")], {}).takes(_pods(1)) == Counter()


def test_a_pod_that_the_api_server_refused_is_nobodys_victim() -> None:
    assert Budgets([], {}, {"u0"}).takes(_pods(1)) is None
    assert Budgets([], {}, {"u1"}).takes(_pods(1)) == Counter()


def test_several_units_share_a_budget() -> None:
    budgets = Budgets([_budget(allowed=2)], _LABELS)
    assert budgets.allow(Counter({0: 2}))
    assert not budgets.allow(Counter({0: 3}))


def test_pods_that_go_for_others_have_taken_theirs() -> None:
    budgets, pods = Budgets([_budget(allowed=2)], _LABELS), _pods(3)
    budgets.spend(pods[:1])
    assert budgets.takes(pods[1:2]) == Counter({0: 1})
    assert budgets.takes(pods[1:]) is None
    budgets.spend([])
    assert budgets.takes(pods[1:]) == Counter({0: 2})


@pytest.mark.parametrize(
    "selector",
    [
        (Requirement("app", "In", ("db", "web")), Requirement("tier", "In", ("x",))),
        (Requirement("app", "Exists", ()),),
        (Requirement("none", "DoesNotExist", ()),),
        (Requirement("app", "NotIn", ("db",)), Requirement("tier", "Exists", ())),
    ],
    ids=["one of several", "any value", "without a label", "not"],
)
def test_a_budget_is_found_whatever_it_asks_beside_many_others(selector: tuple[Requirement, ...]) -> None:
    others = [_budget((Requirement("app", "In", ("web",)), Requirement("n", "In", (str(at),)))) for at in range(500)]
    assert Budgets([*others, _budget(selector)], _LABELS).takes(_pods(1)) == Counter({500: 1})


@pytest.mark.parametrize(
    "selector",
    [
        *[[(Requirement(f"k{at}", op, ("v",)), *_WEB)] * 1000 for at, op in enumerate(["In", "Exists"])],
        [(Requirement("none", "Exists", ()),)] * 1000,
        [(Requirement("app", "NotIn", ("web",)),)] * 1000,
        [tuple(Requirement(f"k{at}", "NotIn", ("v",)) for at in range(10_000))],
        [(*_WEB, Requirement("tier", "In", tuple(map(str, range(10_000)))))],
    ],
    ids=["labels", "any values", "one label", "none of a label", "many requirements", "many values"],
)
def test_a_pod_is_held_against_few_budgets_however_many_there_are(selector: list[tuple[Requirement, ...]]) -> None:
    labels = _Looked(_LABELS["u0"])
    budgets = Budgets([_budget(each, allowed=9) for each in selector], {"u0": labels})
    for _ in range(3):
        budgets.takes(_pods(1))
    assert labels.looks <= 128


class _Looked(dict[str, str]):
    """Labels that count how often one is looked for."""

    looks = 0

    @override
    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)
