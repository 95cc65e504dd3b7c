"""What limit or quota a queue needs for a group, and which other queue takes it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.conditions.suggestion_messages import edit_text
from scheduler.core.decide.changes import AnotherQueue
from scheduler.core.model.preemption import Found, Kept, NoVictims
from scheduler.core.model.quota import QueueElsewhere
from scheduler.core.model.settings import Settings
from scheduler.core.model.steps import ended
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Edit, NotPossible
from scheduler.core.what_if.explanation import preemption_answer, with_residents
from scheduler.core.what_if.queue_changes import OtherQueue, QueueAmount, amounts_needed, candidates
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.objects import NANO, cluster, node, pod, pod_group, queue
from tests.scheduler.core.what_if.given import NO_ROOM, WALL_S, changes, edits, spelled, tries, trying


def of(name: str, team: str = "a", **asked: Any) -> Any:
    return pod(name, labels={"kai.scheduler/queue": team}, **asked)


ORG = queue("org", gpu=(0, 1, -1))


@pytest.mark.parametrize(
    ("queues", "found"),
    [
        ((ORG, queue("a", "org", gpu=(0, 1, 3)), queue("b", "org")), ["limit a gpu=4", "queue=b"]),
        ((queue("org", gpu=(0, 1, 3)), queue("a", "org"), queue("b", "org")), ["limit org gpu=4"]),
        ((queue("org", gpu=(0, 1, 3)), queue("a", "org", gpu=(0, 1, 2)), queue("b", "org", gpu=(0, 1, 1))), []),
    ],
)
def test_the_least_limit_and_other_queues_are_found(queues: tuple[Any, ...], found: list[str]) -> None:
    tried = tries(node(), *queues, of("runs", gpus=2, bound_to="n1"), of("p", gpus=2))
    assert spelled(edits(candidates, tried)) == found


def test_a_quota_is_found_for_what_can_not_be_preempted() -> None:
    tried = tries(node(), queue("a", gpu=(1, 1, -1)), of("p", gpus=2, priority=100))
    assert spelled(edits(candidates, tried)) == ["quota a gpu=2"]


def test_a_gang_adds_what_its_minimum_needs() -> None:
    gang = [pod(name, gpus=2, group="g") for name in "pqr"]
    tried = tries(node(), queue("a", gpu=(0, 1, 3)), pod_group("g", 2, queue="a"), *gang, settings=NO_ROOM)
    assert spelled(amounts_needed(tried)) == ["limit a gpu=4"]


def test_a_weight_is_that_of_the_queue() -> None:
    tried = tries(node(), queue("a", gpu=(0, 1, -1)), of("p", gpus=2))
    (change,) = changes(tried, read_edit("weight a gpu=2.5"))
    assert isinstance(change, AnotherQueue)
    assert change.queue.weight.gpu_nano == 2_500_000
    assert edit_text(read_edit("weight a gpu=2.5")) == "set the weight of queue a to 2.5 for GPUs"


@pytest.mark.parametrize(
    ("older", "found"),
    [
        ({"p1": 2}, ["limit a gpu=4"]),
        ({"p1": 2, "p2": 2}, ["limit a gpu=6"]),
        ({"p1": 1, "p2": 5}, ["limit a gpu=3"]),
        ({"p1": 4, "p2": 4}, ["limit a gpu=2"]),
        ({"p1": 2, "p2": 2, "p3": 2, "p4": 2}, []),
    ],
)
def test_a_limit_counts_those_in_that_come_first_as_long_as_all_of_them_fit(
    older: dict[str, int], found: list[str]
) -> None:
    before = [of(name, gpus=gpus, created=f"2025-01-01T00:00:0{name[1]}Z") for name, gpus in older.items()]
    tried = tries(node(), queue("a", gpu=(0, 1, 0)), *before, of("p", gpus=2), settings=NO_ROOM)
    assert spelled(amounts_needed(tried)) == ["limit a gpu=2"]
    assert spelled(edits(candidates, tried)) == found


def test_a_queue_that_takes_no_pods_is_refused_with_those_that_do() -> None:
    tried = tries(node(), ORG, queue("a", "org"), of("p"))
    with pytest.raises(NotPossible, match=r"queue=org: allowed are queues that take pods: a$"):
        changes(tried, OtherQueue("org"))
    with pytest.raises(NotPossible, match="limit c: allowed are queues that take pods: a"):
        changes(tried, QueueAmount("c", "limit", "gpu", NANO))
    assert QueueAmount("a", "limit", "gpu", 1 << 60).spelled() == "limit a gpu=-1"
    assert QueueAmount("a", "limit", "cpu", 1_500).spelled() == "limit a cpu=1.5"


# Who could be evicted for a group, by the scheduler's own search.

TEAM = {"kai.scheduler/queue": "team"}


def answer(*objects: Any, preemption: bool = True) -> Found | NoVictims | None:
    made = cluster(queue("team", gpu=(0, 1, -1)), node(gpus=1), *objects, settings=Settings(preemption=preemption))
    tried = trying(made)
    before = footprint(made)
    found = ended(preemption_answer(tried.snapshot, tried.subject, now_ns=0, wall_s=WALL_S))
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
    assert isinstance(found, NoVictims)
    assert [(kept.why, kept.pods) for kept in found.kept] == [(Kept.PRIORITY, 1)]


def test_a_gang_is_asked_for_as_a_whole() -> None:
    gang = [pod(name, gpus=1, group="p", labels=TEAM, priority=50) for name in ("p", "q")]
    found = answer(pod_group("p", 2, queue="team"), pod("low", gpus=1, bound_to="n1", labels=TEAM), *gang)
    assert isinstance(found, NoVictims)


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
    assert ended(preemption_answer(known, tried.subject, now_ns=0, wall_s=WALL_S)) == ended(
        preemption_answer(tried.snapshot, tried.subject, now_ns=0, wall_s=WALL_S)
    )
    assert footprint(made) == before


def test_no_residents_are_read_where_nobody_is_evicted() -> None:
    tried = trying(cluster(node(gpus=1), pod("p", gpus=2), settings=Settings(preemption=False)))
    assert with_residents(tried.snapshot, now_ns=0, wall_s=WALL_S) is tried.snapshot


@pytest.mark.parametrize("edit", [OtherQueue("theirs"), QueueAmount("theirs", "limit", "gpu", NANO)])
def test_a_queue_of_another_node_pool_is_said_to_be_there(edit: Edit) -> None:
    made = cluster(node(), queue("a"), pod("p", gpus=9))
    made.queues.elsewhere.put(QueueElsewhere("theirs", "red"))
    with pytest.raises(NotPossible, match="it belongs to node pool red; allowed are queues that take pods: a"):
        changes(trying(made), edit)
