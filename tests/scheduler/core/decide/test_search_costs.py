"""What searches for room are charged: by the cluster, by what goes and by what comes."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.decide.allowance import FURTHER, cost_beside, cost_of_search, cost_of_whole
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.preemption import Bound, Found, Moves, NoMoves, NoRoom
from scheduler.core.preemption.consolidation import find_moves
from scheduler.core.preemption.search import find_room
from tests.scheduler.core.objects import cluster, node, pod, pod_group, queue
from tests.scheduler.core.preemption.scenes import need_of, running, trial_of
from tests.scheduler.core.preemption.test_moving import movable, preempting_cluster
from wire import names

_LABELS = {names.QUEUE_LABEL: "a"}


def _full(nodes: int, *, needs: int, quota: int = 0) -> tuple[Snapshot, Found | NoRoom]:
    """Nodes full of single pods of ``b``, which has this quota, and a gang of ``a`` that needs some of them whole."""
    full: list[Any] = [queue("a", gpu=(4 * nodes, 1, -1)), queue("b", gpu=(quota, 1, -1))]
    for at in range(nodes):
        full += [node(f"n{at}", 4), *(running(f"p{at}-{gpu}", "b", f"n{at}", gpus=1) for gpu in range(4))]
    members = [pod(f"m{at}", gpus=4, group="g", labels=_LABELS) for at in range(needs)]
    made = cluster(*full, pod_group("g", needs, queue="a"), *members)
    trial = trial_of(made)
    return made.snapshot(), find_room(need_of(trial, "g"), trial)


def test_a_search_costs_more_on_a_larger_cluster_and_a_whole_one_several_times_as_much() -> None:
    few, many = (_full(nodes, needs=1)[0] for nodes in (20, 200))
    assert cost_of_search(few) < cost_of_search(many) < cost_of_whole(many)
    rows = 200 + 800 - 20 - 80
    assert cost_of_whole(many) - cost_of_whole(few) > rows
    # Of 1,000 nodes of eight pods each: measured 14 to 20 ms, and 0.9 to 1.6 where a bound refuses.
    assert 13_000 < 2_000 + 9_000 * (cost_of_whole(many) - cost_of_whole(few)) // rows < 20_000


@pytest.mark.parametrize("goes_and_comes", [1, 3])
def test_what_is_found_costs_by_what_goes_and_by_what_comes(goes_and_comes: int) -> None:
    snapshot, found = _full(4, needs=goes_and_comes)
    assert isinstance(found, Found)
    assert len(found.units) == 4 * goes_and_comes
    beside = cost_of_whole(snapshot) - cost_of_search(snapshot)
    assert cost_beside(snapshot, found) - beside == goes_and_comes * (160 + 4 * 85)


def test_several_needs_cost_more_as_each_is_charged_on_its_own() -> None:
    snapshot, found = _full(4, needs=3)
    once, each = cost_beside(snapshot, found), cost_beside(snapshot, found, needs=3)
    assert each - once == 12 * 200
    assert FURTHER > 160 + 85 + 200


def test_a_search_in_vain_costs_by_what_was_tried_and_one_that_a_bound_refuses_little() -> None:
    snapshot, tried = _full(4, needs=2, quota=9)
    assert isinstance(tried, NoRoom)
    assert tried.bound is None
    assert tried.taken_off > tried.placed > 0
    whole = cost_of_whole(snapshot) - cost_of_search(snapshot)
    assert cost_beside(snapshot, tried) == whole + 160 * tried.placed + 85 * tried.taken_off
    assert cost_beside(snapshot, NoRoom(bound=Bound.QUEUE)) == 0


def _moved(nodes: int, *, needs: int) -> tuple[Snapshot, Moves | NoMoves]:
    """Nodes with a free GPU each beside three pods that may be moved; a gang needs some of them whole."""
    there: list[Any] = [queue("a", gpu=(4 * nodes, 1, -1))]
    for at in range(nodes):
        there += [node(f"n{at}", 4), *(movable(f"p{at}-{gpu}", f"n{at}") for gpu in range(3))]
    members = [pod(f"m{at}", gpus=4, group="g", labels=_LABELS) for at in range(needs)]
    made = preempting_cluster(*there, pod_group("g", needs, queue="a"), *members)
    trial = trial_of(made)
    return made.snapshot(), find_moves(need_of(trial, "g"), trial)


def test_moving_costs_by_nodes_that_were_looked_at_and_pods_that_were_placed() -> None:
    snapshot, one = _moved(8, needs=1)
    assert isinstance(one, Moves)
    assert (one.looked, one.placed > 0) == (8, True)
    assert cost_beside(snapshot, one) == 8 * 12 + one.placed * 181
    snapshot, two = _moved(16, needs=2)
    assert isinstance(two, Moves)
    assert cost_beside(snapshot, two) > 2 * cost_beside(snapshot, one)
    assert cost_beside(snapshot, NoMoves()) == 0
