from __future__ import annotations

from dataclasses import dataclass

import pytest

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import Tree
from scheduler.core.scheduling_queue.held_back import OverQuota
from scheduler.core.scheduling_queue.signatures import ShapeKey

ONE, TWO = Use("a", Resources(gpu_nano=1)), Use("a", Resources(gpu_nano=2))
TREE = Tree()


@dataclass
class Room:
    """Takes a use so many times, or only one of them."""

    times: int = 0
    only: Use | None = None

    def room_for(self, use: Use) -> int:
        return self.times if self.only in {None, use} else 0


def rank(at: int) -> Rank:
    return Rank(0, 0, "", f"{at:03}")


def unschedulable(*items: tuple[str, int, Use]) -> OverQuota:
    made = OverQuota()
    made.due(TREE, 0, Room)
    for name, at, use in items:
        made.put(("ns", name), rank(at), use)
    return made


def due(made: OverQuota, times: int, only: Use | None = None) -> list[str]:
    return [str(item[1]) for item in made.due(TREE, 0, lambda: Room(times, only))]


@pytest.mark.parametrize(("times", "woken"), [(1, 32), (40, 40), (99, 50)])
def test_the_first_by_rank_wake_a_few_or_as_many_as_the_queue_takes(times: int, woken: int) -> None:
    made = unschedulable(*((f"g{at:02}", at, ONE) for at in reversed(range(50))))
    assert due(made, times) == [f"g{at:02}" for at in range(woken)]
    assert (len(made), made.have_more) == (50 - woken, woken < 50)


@pytest.mark.parametrize(("held_back", "have_more"), [(0, True), (31, True), (32, False)])
def test_a_queue_takes_more_unless_all_that_woke_were_held_back_again(held_back: int, have_more: bool) -> None:
    names = [f"g{at:02}" for at in range(50)]
    made = unschedulable(*((name, at, ONE) for at, name in enumerate(names)))
    due(made, 1)
    for at in range(held_back):
        made.put(("ns", names[at]), rank(at), ONE)
    assert made.have_more is have_more


def test_nobody_wakes_while_the_queue_takes_nothing() -> None:
    made = unschedulable(("a", 1, ONE))
    assert due(made, 0) == []
    assert not made.have_more


def test_a_use_that_is_taken_does_not_wake_another_one() -> None:
    made = unschedulable(("a", 1, TWO), ("b", 2, ONE))
    assert due(made, 5, only=ONE) == ["b"]
    assert ("ns", "a") in made


def test_who_would_use_something_else_now_wakes_for_that() -> None:
    made = unschedulable(("a", 1, TWO), ("b", 2, ONE))
    made.put(("ns", "a"), rank(3), ONE)
    assert due(made, 5, only=TWO) == []
    assert due(made, 5, only=ONE) == ["b", "a"]


def test_who_left_is_passed_over() -> None:
    made = unschedulable(("a", 1, ONE), ("b", 2, ONE))
    made.drop(("ns", "a"))
    assert due(made, 1) == ["b"]
    assert not made.have_more


def test_a_rank_that_is_raised_counts() -> None:
    made = unschedulable(("a", 1, ONE), ("b", 2, ONE))
    made.raise_rank(("ns", "b"), rank(0))
    made.raise_rank(("ns", "a"), rank(9))
    made.raise_rank(("ns", "nobody"), rank(0))
    assert due(made, 1) == ["b", "a"]


@pytest.mark.parametrize(("tree", "cards"), [(Tree(), 0), (TREE, 80_000)], ids=["a queue", "sizes of cards"])
def test_all_wake_when_what_they_were_told_by_has_changed(tree: Tree, cards: int) -> None:
    made = unschedulable(("a", 1, ONE), ("b", 2, TWO))
    assert set(made.due(tree, cards, Room)) == {("ns", "a"), ("ns", "b")}
    assert len(made) == 0


def test_two_of_one_rank_are_never_compared() -> None:
    """A pod whose class has changed leaves one shape for another, and takes its rank along."""
    made, cls = OverQuota(), PodClass()
    made.due(TREE, 0, Room)
    before, now = ShapeKey("ns", cls, queue="a"), ShapeKey("ns", PodClass(mode="m"), queue="a")
    made.put(before, rank(1), ONE)
    made.drop(before)
    made.put(now, rank(1), ONE)
    made.put(before, rank(1), ONE)
    assert set(made.due(TREE, 0, lambda: Room(2))) == {before, now}


def test_what_is_held_back_again_and_again_is_kept_once() -> None:
    made = unschedulable(("b", 2, ONE))
    for at in range(1000):
        made.put(("ns", "a"), rank(1), ONE)
        if at % 2:
            made.drop(("ns", "a"))
            made.put(("ns", "a"), rank(1 + at % 3), ONE)
    assert made.kept < 100
    assert sorted(due(made, 5)) == ["a", "b"]


def test_nothing_is_kept_of_uses_for_which_nobody_sleeps() -> None:
    made = unschedulable()
    for amount in range(1000):
        made.put(("ns", "a"), rank(1), Use("a", Resources(cpu_milli=amount)))
        made.due(TREE, 0, Room)
        made.drop(("ns", "a"))
    assert made.kept == 0


def test_those_told_longest_ago_are_out_of_date_when_what_queues_have_has_changed() -> None:
    made = unschedulable(("a", 1, ONE), ("b", 2, ONE), ("c", 3, TWO))
    assert made.outdated(9) == []
    made.due(TREE, 0, Room, version=1)
    assert [item[1] for item in made.outdated(2)] == ["a", "b"]
    made.put(("ns", "a"), rank(1), ONE)
    made.drop(("ns", "c"))
    assert [item[1] for item in made.outdated(9)] == ["b"]


def test_while_a_queue_takes_more_nobody_is_told_anew() -> None:
    made = unschedulable(*((f"g{at:02}", at, ONE) for at in range(50)))
    made.due(TREE, 0, lambda: Room(1), version=1)
    assert made.have_more
    assert made.outdated(9) == []
