"""What limit or quota a queue needs for a group, and which other queue takes it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.conditions.suggestion_messages import edit_text
from scheduler.core.decide.changes import AnotherQueue
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import NotPossible
from scheduler.core.what_if.queue_changes import OtherQueue, QueueAmount, amounts_needed, candidates
from tests.scheduler.core.objects import NANO, node, pod, pod_group, queue
from tests.scheduler.core.what_if.given import NO_ROOM, changes, edits, spelled, tries


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
