"""What waits for the same comes in the order of ranks, each once."""

from __future__ import annotations

import pytest

from scheduler.core.model.priority_order import Rank
from scheduler.core.scheduling_queue.signatures import Ranked, Turns


def _rank(uid: str, *, priority: int = 0, created: str = "") -> Rank:
    return Rank(-priority, 0, created, uid)


def _ranked(*ranks: Rank) -> Ranked:
    made = Ranked()
    for rank in ranks:
        made.put_rank(rank)
    return made


def _taken(of: Ranked) -> list[str]:
    found, turns = [], Turns(of)
    while turns.first() is not None:
        found.append(turns.take())
    return [rank.uid for rank in found]


def test_the_highest_priority_comes_first_then_the_oldest_then_the_uid() -> None:
    of = _ranked(_rank("d", created="2"), _rank("b", created="1"), _rank("a", created="1"), _rank("c", priority=1))
    assert _taken(of) == ["c", "a", "b", "d"]


def test_the_turns_of_one_decision_leave_the_others_as_they_were() -> None:
    of = _ranked(_rank("a"), _rank("b"))
    assert _taken(of) == _taken(of) == ["a", "b"]


def test_one_that_left_and_came_back_has_one_turn() -> None:
    of = _ranked(_rank("a"), _rank("b"))
    of.drop("a")
    of.put_rank(_rank("a"))
    assert _taken(of) == ["a", "b"]


def test_one_whose_rank_has_changed_has_its_new_turn_alone() -> None:
    of = _ranked(_rank("a"), _rank("b"))
    of.put_rank(_rank("b", priority=5))
    assert _taken(of) == ["b", "a"]


def test_ranks_of_what_has_left_do_not_pile_up() -> None:
    of = _ranked(_rank("a"))
    for priority in range(1_000):
        of.put_rank(_rank("b", priority=priority))
    assert len(of.in_order()) < 100
    of.drop("b")
    assert _taken(of) == ["a"]


def test_nobody_has_a_turn_who_has_none_to_come() -> None:
    turns = Turns(_ranked(_rank("a")))
    assert turns.take().uid == "a"
    with pytest.raises(LookupError, match="nobody is left"):
        turns.take()


def test_those_who_were_settled_before_have_no_turn_however_many_they_are() -> None:
    names = [f"p{number:03}" for number in range(200)]
    of = _ranked(*map(_rank, names))
    turns = Turns(of, set(names[:150]) | {"of another shape"})
    assert [turns.take().uid for _ in range(50)] == names[150:]
    assert turns.first() is None


def test_nobody_has_a_turn_after_the_end() -> None:
    of = _ranked(_rank("a"), _rank("b"))
    turns = Turns(of)
    turns.end()
    assert turns.first() is None
    assert _taken(of) == ["a", "b"]  # the next decision's turns
