"""Why a queue gets what it gets: the division's own steps, the order of the decision itself."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.verdict import Verdict
from scheduler.core.report.queue_explanation import Explanation, explanation
from tests.scheduler.core.objects import NANO, bound, node, pod, pod_group, queue
from tests.scheduler.core.report.listing import listed
from wire import names

GPU = 2


def say(verdict: Verdict) -> str:
    return verdict.code.value


def explained(name: str, *objects: Any) -> Explanation | None:
    return explanation(listed(*objects), name, say)


def found(name: str, *objects: Any) -> Explanation:
    made = explained(name, *objects)
    assert made is not None
    return made


def of(team: str, name: str, *, gpus: int = 1, **more: Any) -> Any:
    return pod(name, gpus=gpus, labels={names.QUEUE_LABEL: team}, **more)


TREE = (
    node(gpus=9),
    queue("dept", gpu=(4, 1, -1)),
    queue("other", gpu=(0, 1, -1)),
    queue("a", "dept", gpu=(1, 2, -1)),
    queue("b", "dept", gpu=(0, 1, -1)),
)
BUSY = (*TREE, of("a", "a1", gpus=9), of("b", "b1", gpus=9), of("other", "o1", gpus=9))


def test_the_division_is_told_level_by_level_step_by_step() -> None:
    told = found("a", *BUSY)
    assert [level.below for level in told.levels] == ["", "dept"]
    top, dept = (level.divisions[GPU] for level in told.levels)
    assert [(step.kind, step.priority, [each // NANO for each in step.given]) for step in top.steps] == [
        ("quota", None, [4, 0]),
        ("round", 100, [2, 2]),
        ("leftover", 100, [1, 0]),
    ]
    assert (top.total // NANO, dept.total // NANO, dept.left) == (9, 7, 0)
    assert [(part.queue, part.fair_share // NANO) for part in dept.queues] == [("a", 5), ("b", 2)]
    assert [(part.quota // NANO, part.weight_millionths, part.limit) for part in dept.queues] == [
        (1, 2 * 10**6, -1),
        (0, 10**6, -1),
    ]
    assert told.path[0].fair_share.gpu_nano == dept.queues[0].fair_share
    assert [view.name for view in told.path] == ["a", "dept"]


def test_of_a_queue_with_children_their_division_is_told_too() -> None:
    assert [level.below for level in found("dept", *BUSY).levels] == ["", "dept"]
    assert [order.below for order in found("dept", *BUSY).orders] == ["", "dept"]


def test_the_order_is_that_of_the_decision_and_says_why() -> None:
    told = found("b", *TREE, bound(of("b", "runs"), "n1"), of("b", "b1"), of("a", "a1"), of("other", "o1"))
    top, dept = told.orders
    assert [(turn.queue, turn.after_by) for turn in top.turns] == [("dept", ""), ("other", "quota")]
    assert [(turn.queue, turn.after_by, turn.next.name) for turn in dept.turns] == [
        ("a", "", "a1"),
        ("b", "quota", "b1"),
    ]
    assert told.next is not None
    assert (told.next.kind, told.next.namespace, told.next.requested.gpu_nano) == ("Pod", "ns", NANO)
    assert told.next.held_back is None


def test_a_gang_is_named_with_what_starts_it() -> None:
    gang = [of("a", f"w{at}", gpus=2, group="gang") for at in range(3)]
    told = found("a", *TREE, pod_group("gang", 2, queue="a"), *gang)
    assert told.next is not None
    assert (told.next.kind, told.next.name, told.next.requested.gpu_nano) == ("PodGroup", "gang", 4 * NANO)


@pytest.mark.parametrize(
    ("limit", "priority", "code"),
    [(1, 0, "OverLimit"), (-1, 100, "NonPreemptibleOverQuota"), (-1, 0, None)],
)
def test_what_holds_the_next_back_is_told(limit: int, priority: int, code: str | None) -> None:
    objects = (
        node(gpus=8),
        queue("dept", gpu=(1, 1, limit)),
        queue("a", "dept"),
        of("a", "w", gpus=2, priority=priority),
    )
    told = found("a", *objects).next
    assert told is not None
    assert (told.held_back.code if told.held_back else None) == code


def test_memory_of_a_gpu_is_held_back_only_if_it_is_too_much_on_every_card() -> None:
    """As the scheduler does: on the largest card it is the smallest part."""
    small, large = node("n1", gpus=1, mem_mib=1000), node("n2", gpus=1, mem_mib=4000)
    for limit, held in ((0.25, None), (0.2, "OverLimit")):
        waits = of("a", "w", gpus=0, mem=1000)
        told = found("a", small, large, queue("a", gpu=(0, 1, limit)), waits).next
        assert told is not None
        assert (told.held_back.code if told.held_back else None) == held
        assert told.requested.gpu_nano == NANO


@pytest.mark.parametrize(
    ("name", "code", "path"),
    [
        ("lost", "QueueParentDoesNotExist", ["lost"]),
        ("x", "QueueCycle", ["x", "y"]),
        ("bad", "QueueClosed", ["bad", "dept"]),
    ],
)
def test_of_a_queue_that_can_not_be_used_the_broken_link_is_told(name: str, code: str, path: list[str]) -> None:
    broken = (queue("lost", "nowhere"), queue("x", "y"), queue("y", "x"), queue("bad", "dept", gpu=(-7, 1, -1)))
    told = found(name, *TREE, *broken)
    assert told.unusable is not None
    assert (told.unusable.code, [view.name for view in told.path]) == (code, path)
    assert (told.levels, told.orders, told.next) == ((), (), None)


def test_there_is_nothing_to_explain_of_a_queue_that_is_not_there() -> None:
    assert explained("nobody", *TREE) is None
