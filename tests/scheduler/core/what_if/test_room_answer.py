"""Who could be evicted for a group, by the scheduler's own search."""

from __future__ import annotations

from typing import Any

from scheduler.core.model.preemption import Found, Kept, NoRoom
from scheduler.core.model.settings import Settings
from scheduler.core.model.steps import ended
from scheduler.core.what_if.explanation import room_answer, with_residents
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.objects import cluster, node, pod, pod_group, queue
from tests.scheduler.core.what_if.given import WALL_S, trying

TEAM = {"kai.scheduler/queue": "team"}


def answer(*objects: Any, preemption: bool = True) -> Found | NoRoom | None:
    made = cluster(queue("team", gpu=(0, 1, -1)), node(gpus=1), *objects, settings=Settings(preemption=preemption))
    tried = trying(made)
    before = footprint(made)
    found = ended(room_answer(tried.snapshot, tried.subject, now_ns=0, wall_s=WALL_S))
    assert footprint(made) == before
    return found


def test_pods_of_lower_priority_could_go() -> None:
    found = answer(
        pod("low", gpus=1, bound_to="n1", labels=TEAM, priority=10), pod("p", gpus=1, labels=TEAM, priority=50)
    )
    assert isinstance(found, Found)
    assert [unit.pods for unit in found.units] == [("uid-low",)]


def test_what_protects_the_others_is_told() -> None:
    found = answer(
        pod("same", gpus=1, bound_to="n1", labels=TEAM, priority=50), pod("p", gpus=1, labels=TEAM, priority=50)
    )
    assert isinstance(found, NoRoom)
    assert [(kept.why, kept.pods) for kept in found.kept] == [(Kept.PRIORITY, 1)]


def test_a_gang_is_asked_for_as_a_whole() -> None:
    gang = [pod(name, gpus=1, group="p", labels=TEAM, priority=50) for name in ("p", "q")]
    found = answer(pod_group("p", 2, queue="team"), pod("low", gpus=1, bound_to="n1", labels=TEAM), *gang)
    assert isinstance(found, NoRoom)


def test_nobody_is_asked_where_nobody_is_evicted_or_room_is_not_what_lacks() -> None:
    low = pod("low", gpus=1, bound_to="n1", labels=TEAM, priority=10)
    assert answer(low, pod("p", gpus=1, labels=TEAM, priority=50), preemption=False) is None
    assert answer(low, pod("p", gpus=1, labels=TEAM, priority=50, gated=True)) is None


def test_residents_are_read_once_for_all_tries_and_say_the_same() -> None:
    low = pod("low", gpus=1, bound_to="n1", labels=TEAM, priority=10)
    high = pod("p", gpus=1, labels=TEAM, priority=50)
    made = cluster(queue("team", gpu=(0, 1, -1)), node(gpus=1), low, high, settings=Settings(preemption=True))
    tried, before = trying(made), footprint(made)
    known = with_residents(tried.snapshot, now_ns=0, wall_s=WALL_S)
    assert [each and each.unit.pods for each in known.residents.residents] == [("uid-low",)]
    assert known.with_().residents.residents == known.residents.residents != tried.snapshot.residents.residents
    assert ended(room_answer(known, tried.subject, now_ns=0, wall_s=WALL_S)) == ended(
        room_answer(tried.snapshot, tried.subject, now_ns=0, wall_s=WALL_S)
    )
    assert footprint(made) == before


def test_no_residents_are_read_where_nobody_is_evicted() -> None:
    tried = trying(cluster(node(gpus=1), pod("p", gpus=2), settings=Settings(preemption=False)))
    assert with_residents(tried.snapshot, now_ns=0, wall_s=WALL_S) is tried.snapshot
