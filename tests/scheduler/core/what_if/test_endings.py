"""What would have to end: the smallest first, of those that leave room where a pod of the group may be."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.what_if.edits import NotPossible
from scheduler.core.what_if.node_changes import Ended, NodeOut, ended_groups
from tests.scheduler.core.objects import NANO, bound, node, pod, pod_group, queue, reservation
from tests.scheduler.core.what_if.given import changes, edits, spelled, tries

RUNS = (
    node(gpus=4),
    pod_group("job", 2),
    *(pod(f"j{at}", gpus=1, group="job", bound_to="n1") for at in range(2)),
    pod("small", gpus=1, bound_to="n1"),
    pod("big", gpus=1, cpu="60", bound_to="n1"),
)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"gpus": 1}, ["finish big", "finish small", "finish job"]),
        ({"gpus": 2}, ["finish job"]),
        ({"cpu": "50"}, ["finish big"]),
        ({"gpus": 3}, []),
    ],
)
def test_what_leaves_room_is_found(asked: dict[str, Any], found: list[str]) -> None:
    assert spelled(edits(ended_groups, tries(*RUNS, pod("p", **asked)))) == found


def test_tenants_of_a_device_leave_room_for_a_share() -> None:
    tenants = [bound(pod(name), "n1", ("g", 4 * NANO // 10)) for name in ("a", "b")]
    book = reservation("g", "n1", book={"uid-a": 4 * NANO // 10, "uid-b": 4 * NANO // 10})
    assert spelled(edits(ended_groups, tries(node(gpus=1), *tenants, book, pod("p", fraction="0.5")))) == [
        "finish a",
        "finish b",
    ]


def test_what_uses_the_queue_that_is_at_its_limit_is_found() -> None:
    labels = {"kai.scheduler/queue": "a"}
    runs = pod("runs", gpus=1, bound_to="n1", labels=labels), pod("other", gpus=1, bound_to="n1")
    tried = tries(node(), queue("a", gpu=(0, 1, 1)), queue("default-queue"), *runs, pod("p", gpus=1, labels=labels))
    assert spelled(edits(ended_groups, tried)) == ["finish runs"]


def test_who_comes_first_takes_the_room() -> None:
    older = pod("older", gpus=2, created="2025-01-01T00:00:00Z")
    assert edits(ended_groups, tries(*RUNS, older, pod("p", gpus=2))) == []


def test_what_does_not_run_is_refused_with_what_does() -> None:
    tried = tries(*RUNS, pod("p", gpus=1))
    with pytest.raises(
        NotPossible, match=r"finish ns/x: allowed are pods and PodGroups that run: ns/big, ns/job, ns/small"
    ):
        changes(tried, Ended("x"))
    with pytest.raises(NotPossible, match=r"drain n9: allowed are nodes: n1"):
        changes(tried, NodeOut("n9"))
    assert [NodeOut("n1").spelled(), NodeOut("n1", is_drained=False).spelled()] == ["drain n1", "cordon n1"]
    assert not tried.helps(*changes(tried, NodeOut("n1")), is_own=False)
