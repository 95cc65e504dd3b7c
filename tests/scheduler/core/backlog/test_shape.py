"""Pods of one shape come in the order of decision, each once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.core.backlog.shape import Shape, ShapeKey, Turns
from scheduler.core.model.records import PodClass, PodRecord

_CLS = PodClass()


def _pod(name: str, *, priority: int = 0, created: str = "") -> PodRecord:
    return PodRecord(uid=name, namespace="ns", name=name, rv="1", node="", cls=_CLS, priority=priority, created=created)


def _shape(*pods: PodRecord) -> Shape:
    made = Shape(ShapeKey("ns", _CLS))
    for pod in pods:
        made.put(pod)
    return made


def _taken(shape: Shape) -> list[str]:
    found, turns = [], Turns(shape)
    while turns.first() is not None:
        found.append(turns.take())
    return [rank.uid for rank in found]


def test_the_highest_priority_comes_first_then_the_oldest_then_the_uid() -> None:
    shape = _shape(_pod("d", created="2"), _pod("b", created="1"), _pod("a", created="1"), _pod("c", priority=1))
    assert _taken(shape) == ["c", "a", "b", "d"]


def test_the_turns_of_one_decision_leave_the_shape_as_it_was() -> None:
    shape = _shape(_pod("a"), _pod("b"))
    assert _taken(shape) == _taken(shape) == ["a", "b"]


def test_a_pod_that_left_and_came_back_has_one_turn() -> None:
    shape = _shape(_pod("a"), _pod("b"))
    shape.drop("a")
    shape.put(_pod("a"))
    assert _taken(shape) == ["a", "b"]


def test_a_pod_whose_priority_has_changed_has_its_new_turn_alone() -> None:
    shape = _shape(_pod("a"), _pod("b"))
    shape.put(replace(_pod("b"), priority=5))
    assert _taken(shape) == ["b", "a"]


def test_ranks_of_pods_that_have_left_do_not_pile_up() -> None:
    shape = _shape(_pod("a"))
    for priority in range(1_000):
        shape.put(_pod("b", priority=priority))
    assert len(shape._in_order) < 100
    shape.drop("b")
    assert _taken(shape) == ["a"]


def test_nobody_has_a_turn_who_has_none_to_come() -> None:
    turns = Turns(_shape(_pod("a")))
    assert turns.take().uid == "a"
    with pytest.raises(LookupError, match="no pod"):
        turns.take()


def test_those_that_are_left_of_very_many_come_in_order() -> None:
    shape = _shape(*(_pod(f"p{number:03}", priority=number) for number in range(200)))
    for number in range(190):
        shape.drop(f"p{number:03}")
    shape.put(_pod("p000", priority=500))
    assert len(shape._in_order) < 100
    assert _taken(shape) == ["p000", *(f"p{number:03}" for number in reversed(range(190, 200)))]
