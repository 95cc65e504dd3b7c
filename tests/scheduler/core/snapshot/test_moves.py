"""Moves of a decision: each matcher has those of the pods that it takes, and pays for each comparison once."""

from __future__ import annotations

from scheduler.core.filters.spread import Staying
from scheduler.core.model.pod_class import Requirement
from scheduler.core.model.records import PodRecord
from scheduler.core.snapshot.pod_counts import Moves
from tests.scheduler.core.filters.beside import made, running


def _pod(app: str) -> PodRecord:
    found = made(running("r", "p", app)).pod("uid-r")
    assert found is not None
    return found


def _of(app: str) -> Staying:
    return Staying("ns", (Requirement("app", "In", (app,)),))


def test_a_matcher_has_the_moves_of_its_pods_in_order() -> None:
    moves = Moves(lambda _: None)
    moves.all += [(_pod("a"), 0, 1), (_pod("b"), 1, 1)]
    taken = moves.taken_by(_of("a"))
    assert taken.up_to_now() == [(0, 1)]
    moves.all += [(_pod("a"), 2, 1), (_pod("a"), 0, -1)]
    assert taken.up_to_now() == [(0, 1), (2, 1), (0, -1)]
    assert moves.taken_by(_of("b")).up_to_now() == [(1, 1)]


def test_equal_matchers_compare_each_pod_once() -> None:
    moves = Moves(lambda _: None)
    moves.all += [(_pod("a"), 0, 1), (_pod("b"), 1, 1)]
    for _ in range(3):
        assert moves.taken_by(_of("a")).up_to_now() == [(0, 1)]
    assert moves.compared == 2 * _of("a").effort()
