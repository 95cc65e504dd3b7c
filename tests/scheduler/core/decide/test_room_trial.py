"""Needs that are placed on paper: as a decision places them, and without a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.core.backlog.notes import Notes
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.room_trial import cost_beside, room_trial
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.room import Found, NoMoves, NoRoom, Place
from scheduler.core.nodes.table import GPUS
from scheduler.core.room.need import Need
from scheduler.core.room.search import find_room
from scheduler.core.room.trial import Trial
from tests.scheduler.core.objects import cluster, node, pod, pod_group, queue, reservation
from tests.scheduler.core.room.scenes import running
from wire import names

_LABELS = {names.QUEUE_LABEL: "a"}


def _trial(made: Cluster) -> Trial:
    snapshot = made.snapshot()
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    return room_trial(Attempts(snapshot, 0, LIMITS, allowance, Notes(snapshot.backlog)), wall_s=0)


def _gang(trial: Trial, name: str = "g") -> Need:
    group = trial.pod_groups["ns", name]
    pods = order_members(pod for pod in trial.pods.members("ns", name) if not pod.node)
    return Need(pods=tuple(pods), group=group, quorum=trial.quorum(group), queue="a", priority=0)


def _on(places: Sequence[Place] | None) -> list[str] | None:
    return None if places is None else [place.node for place in places]


@pytest.mark.parametrize(("minimum", "nodes"), [(2, ["n1", "n1"]), (3, ["n1", "n1", "n2"]), (5, None)])
def test_of_a_gang_as_many_members_are_placed_as_its_minimum_needs(minimum: int, nodes: list[str] | None) -> None:
    members = [pod(f"p{at}", gpus=1, group="g", labels=_LABELS) for at in range(5)]
    trial = _trial(cluster(node("n1", 2), node("n2", 2), pod_group("g", minimum, queue="a"), *members, queue("a")))
    assert _on(trial.paper.place(_gang(trial))) == nodes


@pytest.mark.parametrize(("limit", "nodes"), [(2, ["n1", "n1"]), (1, None)])
def test_a_queue_that_takes_no_more_keeps_a_need_out(limit: int, nodes: list[str] | None) -> None:
    members = [pod(f"p{at}", gpus=1, group="g", labels=_LABELS) for at in range(2)]
    made = cluster(node("n1", 2), pod_group("g", 2, queue="a"), *members, queue("a", gpu=(0, 1, limit)))
    trial = _trial(made)
    assert _on(trial.paper.place(_gang(trial))) == nodes


def test_a_whole_gpu_may_be_one_that_an_idle_reservation_gives_back() -> None:
    made = cluster(node("n1", 1), reservation("x", "n1", book={}), pod("p", gpus=1, labels=_LABELS), queue("a"))
    trial = _trial(made)
    waiting = trial.pods.records["uid-p"]
    before, mark = trial.statement.table.free[GPUS].tolist(), trial.statement.checkpoint()
    assert trial.paper.place(Need(pods=(waiting,), queue="a", priority=0)) == (Place("uid-p", "n1"),)
    assert trial.accounts.of[0].held.gpu_nano == 10**9
    trial.statement.rollback(mark)
    assert trial.statement.table.free[GPUS].tolist() == before


def test_what_is_placed_on_paper_teaches_the_decision_nothing() -> None:
    made = cluster(node("n1", 1), pod("p", gpus=2, labels=_LABELS), queue("a"))
    snapshot = made.snapshot()
    attempts = Attempts(snapshot, 0, LIMITS, Allowance(namespaces=1, most=LIMITS.most), Notes(snapshot.backlog))
    trial = room_trial(attempts, wall_s=0)
    need = Need(pods=(trial.pods.records["uid-p"],), queue="a", priority=0)
    assert trial.paper.place(need) is None
    assert (
        attempts.classes.hopeless,
        attempts.classes.roomless,
        attempts.classes.fitting,
        list(attempts.notes.taken),
    ) == ({}, {}, set(), [])


def _full(nodes: int, *, needs: int, quota: int) -> Trial:
    """Nodes full of single pods of ``b``, which has this quota, and a gang of ``a`` that needs some of them whole."""
    full: list[Any] = [queue("a", gpu=(4 * nodes, 1, -1)), queue("b", gpu=(quota, 1, -1))]
    for at in range(nodes):
        full += [node(f"n{at}", 4), *(running(f"p{at}-{gpu}", "b", f"n{at}", gpus=1) for gpu in range(4))]
    members = [pod(f"m{at}", gpus=4, group="g", labels=_LABELS) for at in range(needs)]
    return _trial(cluster(*full, pod_group("g", needs, queue="a"), *members))


def _cost_of_reclaiming(nodes: int) -> int:
    """Of a search for a gang that needs all GPUs of some nodes, each full of single pods of another queue."""
    trial = _full(nodes, needs=nodes, quota=0)
    found = find_room(_gang(trial), trial)
    assert isinstance(found, Found)
    assert len(found.units) == 4 * nodes
    return cost_beside(found)


def test_a_search_costs_by_what_goes_and_by_what_comes() -> None:
    assert _cost_of_reclaiming(3) == 3 * _cost_of_reclaiming(1) > 0


def test_a_search_in_vain_costs_by_what_was_tried() -> None:
    trial = _full(4, needs=2, quota=9)
    tried = find_room(_gang(trial), trial)
    assert isinstance(tried, NoRoom)
    assert tried.taken_off > tried.placed > 0
    tried = NoRoom(placed=10, taken_off=1_000)
    assert cost_beside(tried) > 10 * cost_beside(NoRoom(placed=10)) > 0
    assert cost_beside(NoMoves(placed=10)) == cost_beside(NoRoom(placed=10))
