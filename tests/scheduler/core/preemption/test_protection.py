"""Minimum runtimes, evictions not long ago, and the taker's own delay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.preemption import Action, Evicted, Method, RoomSettings
from scheduler.core.model.quota import WITHOUT_END, QueueRecord
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.protection import delayed_until_s, has_run_at_s, minimum_ns, parting, protected_until_s
from scheduler.core.preemption.victim_units import residents
from scheduler.core.queues.tree import Tree, TreeQueue
from tests.scheduler.core.objects import cluster, node, queue
from tests.scheduler.core.preemption.scenes import NOON_S, need_of, running, trial_of, waiting

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
    found = tree.find(name)
    assert found is not None
    return found


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
            RoomSettings(reclaim_min_ns=7 * _S, preempt_min_ns=9 * _S, reclaim_method=method),
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
    settings = RoomSettings(reclaim_min_ns=7 * _S, preempt_min_ns=9 * _S)
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
