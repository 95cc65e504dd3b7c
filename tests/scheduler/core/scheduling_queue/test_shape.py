"""A shape ranks its pods as pods alone are ranked."""

from __future__ import annotations

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.scheduling_queue.signatures import Shape, ShapeKey, Turns

_CLS = PodClass()


def _pod(name: str, *, priority: int = 0, created: str = "") -> PodRecord:
    return PodRecord(uid=name, namespace="ns", name=name, rv="1", node="", cls=_CLS, priority=priority, created=created)


def test_pods_of_one_shape_come_in_the_order_of_decision() -> None:
    shape = Shape(ShapeKey("ns", _CLS))
    for pod in (_pod("d", created="2"), _pod("b", created="1"), _pod("a", created="1"), _pod("c", priority=1)):
        shape.put(pod)
    turns = Turns(shape)
    assert [turns.take().uid for _ in range(4)] == ["c", "a", "b", "d"]
