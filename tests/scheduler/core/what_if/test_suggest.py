"""What helps comes cheapest first, at most eight; two changes together only where no single one helps."""

from __future__ import annotations

import pytest

from scheduler.core.what_if.suggestions import MOST, suggestions, suggestions_within
from scheduler.core.what_if.trials import Trying
from tests.scheduler.core.objects import node, pod, pod_group, queue
from tests.scheduler.core.what_if.given import NO_ROOM, spelled, tries


def said(tried: Trying) -> list[list[str]]:
    return [spelled(each.edits) for each in suggestions(tried)]


def test_they_come_in_the_order_of_what_they_cost_who_asks() -> None:
    gang = [pod(name, gpus=2, group="g") for name in "pqr"]
    tried = tries(node(gpus=4), pod("t", gpus=1, bound_to="n1"), pod_group("g", 3), *gang)
    assert said(tried) == [["gpus=1"], ["members=1"], ["node +1 like n1"]]


def test_there_are_no_more_than_eight() -> None:
    taints = [node(f"t{at}", taints=[(f"k{at}", "", "NoSchedule")]) for at in range(3)]
    queues = [queue(name) for name in ("default-queue", "b")]
    runs = [pod(f"r{at}", gpus=4, bound_to="n1") for at in range(2)]
    tried = tries(
        node(),
        *taints,
        *queues,
        *runs,
        pod("p", gpus=4, cpu="1", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}}),
    )
    assert 0 < len(said(tried)) <= MOST


def test_two_together_are_told_where_no_single_one_helps() -> None:
    gang = [pod(name, gpus=4, group="g") for name in "pq"]
    both = tries(node(gpus=1, pods=1), pod_group("g", 2), *gang)
    assert said(both) == [["members=1", "gpus=1"]]


def test_a_queue_and_nodes_together() -> None:
    labels = {"kai.scheduler/queue": "a"}
    runs = pod("t", gpus=2, bound_to="n1", labels=labels)
    tried = tries(node(gpus=2), queue("a", gpu=(0, 1, 2)), runs, pod("p", gpus=1, cpu="1", labels=labels, priority=0))
    assert said(tried) == [["finish t"]]
    mine = pod("mine", gpus=2, bound_to="n1")
    queues = queue("a", gpu=(0, 1, 0)), queue("default-queue")
    other = tries(node(gpus=2), *queues, mine, pod("p", gpus=1, labels=labels), settings=NO_ROOM)
    assert said(other) == [["limit a gpu=1", "node +1 like n1"]]


def test_nothing_is_said_of_a_group_that_starts() -> None:
    assert said(tries(node(), pod("p", gpus=1))) == []


@pytest.mark.parametrize(("operations", "found", "is_whole"), [(0, 0, False), (3_000, 1, False), (None, 3, True)])
def test_no_try_is_begun_after_some_operations_and_it_is_said_so(
    operations: int | None, found: int, is_whole: bool
) -> None:
    gang = [pod(name, gpus=2, group="g") for name in "pqr"]
    tried = tries(node(gpus=4), pod("t", gpus=1, bound_to="n1"), pod_group("g", 3), *gang)
    some, ended = suggestions_within(tried, operations)
    assert (len(some), ended) == (found, is_whole)
    assert tuple(some) == tuple(suggestions(tried))[:found]
