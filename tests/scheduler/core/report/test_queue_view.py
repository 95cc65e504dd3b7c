"""Queues in numbers: as decisions count them, those that can't be used among them."""

from __future__ import annotations

from typing import Any

from scheduler.core.model.verdict import Verdict
from scheduler.core.report.queue_view import Amounts, QueueView, queue_views
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, queue
from wire import names

GIB = 2**30


def say(verdict: Verdict) -> str:
    return f"{verdict.code.value} at {verdict.queue.at}" if verdict.queue else verdict.code.value


def views(*objects: Any) -> dict[str, QueueView]:
    made = cluster(*objects)
    queues = made.prepared(0).queues
    return {view.name: view for view in queue_views(queues, queues.accounts(), say)}


def of(team: str, name: str, *, gpus: int = 1, **more: Any) -> Any:
    return pod(name, gpus=gpus, labels={names.QUEUE_LABEL: team}, **more)


def gpus(amounts: Amounts) -> float:
    return amounts.gpu_nano / NANO


def test_a_parent_counts_what_its_children_hold_and_ask() -> None:
    found = views(
        node(gpus=8),
        queue("dept", gpu=(4, 1, 6)),
        queue("a", "dept", gpu=(2, 1, -1)),
        queue("b", "dept"),
        bound(of("a", "runs", gpus=2), "n1"),
        bound(of("a", "leaves", deleting=True), "n1"),
        bound(of("b", "urgent", priority=100), "n1"),
        of("b", "waits", gpus=3),
    )
    dept = found["dept"]
    assert (dept.children, dept.pods, found["a"].pods, found["b"].pods) == (("a", "b"), 0, 2, 2)
    assert [gpus(each) for each in (dept.allocated, dept.terminating, dept.allocated_non_preemptible)] == [4, 1, 1]
    assert [gpus(each) for each in (dept.requested, dept.fair_share, dept.quota, dept.limit)] == [6, 6, 4, 6]
    assert {name: gpus(view.fair_share) for name, view in found.items()} == {"dept": 6, "a": 2, "b": 4}
    assert found["a"].limit.gpu_nano == -1
    assert (dept.unusable, found["a"].weight_millionths.gpu) == (None, 10**6)


def test_a_queue_that_can_not_be_used_says_so_and_what_its_pods_hold() -> None:
    found = views(
        node(gpus=8),
        queue("dept"),
        queue("lost", "nowhere"),
        queue("below", "lost"),
        bound(of("lost", "runs", gpus=3), "n1"),
        of("dept", "waits", gpus=8),
    )
    assert found["lost"].unusable is not None
    assert found["lost"].unusable.message == "QueueParentDoesNotExist at nowhere"
    assert found["below"].unusable is not None
    assert (gpus(found["lost"].allocated), gpus(found["lost"].fair_share)) == (3, 0)
    # What it holds is not there for others to divide.
    assert gpus(found["dept"].fair_share) == 5


def test_without_queue_objects_there_is_nothing_to_show() -> None:
    assert views(node(gpus=8), of("a", "waits")) == {}
