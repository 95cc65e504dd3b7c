"""A change helps if the same decision places the group then, beside others that wait where they may come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.convert.nodes import node_record
from scheduler.core.decide.changes import AnotherNode, Change, WithoutPods
from scheduler.core.model.preemption import Action, NoRoom
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.objects import bound, cluster, node, pod, pod_group, queue, reservation
from tests.scheduler.core.stepping import at_once
from tests.scheduler.core.what_if.given import tries, trying

OLD = "2025-01-01T00:00:00Z"


def more(gpus: int) -> Change:
    return AnotherNode(node_record(node("n2", gpus)))


@pytest.mark.parametrize(
    ("others", "gpus", "helps"),
    [
        ((), 2, True),
        ((), 1, False),
        ((pod("older", gpus=2, created=OLD),), 2, False),
        ((pod("older", gpus=2, created=OLD),), 4, True),
        ((pod("younger", gpus=2, created="2027-01-01T00:00:00Z"),), 2, True),
        ((pod_group("g", 2), *(pod(f"m{at}", gpus=1, group="g", priority=50) for at in range(2))), 2, False),
    ],
)
def test_what_is_added_helps_if_nobody_takes_it_first(others: tuple[Any, ...], gpus: int, helps: bool) -> None:
    tried = tries(node(gpus=0), pod("p", gpus=2), *others)
    assert tried.helps(more(gpus), is_own=False) is helps


def test_of_many_that_request_the_same_those_left_out_might_come_first_so_nothing_is_promised() -> None:
    crowd = [pod(f"o{at}", gpus=1, created=OLD) for at in range(65)]
    tried = tries(node(gpus=0), pod("p", gpus=2), *crowd)
    assert not tried.helps(more(66), is_own=False)
    assert tried.helps(more(64 + 2), is_own=False) is False
    assert tries(node(gpus=0), pod("p", gpus=2), *crowd[:64]).helps(more(66), is_own=False)


def test_where_others_would_be_placed_now_a_change_of_the_group_is_tried_beside_them() -> None:
    tried = tries(node(gpus=2), pod("older", gpus=2, created=OLD), pod("p", gpus=2))
    assert not tried.is_quiet
    assert tried.outcome().starts
    assert not tried.helps(is_own=True)


def test_room_is_searched_for_beside_others_only_for_a_group_that_needs_it_alone() -> None:
    searched: list[Need] = []

    def no_room(need: Need, trial: Trial, actions: Sequence[Action]) -> NoRoom:
        del trial, actions
        searched.append(need)
        return NoRoom()

    takes = Settings(preemption=True)
    tried = tries(node(gpus=0), pod("p", gpus=2), pod("older", gpus=2, created=OLD), settings=takes)
    tried.snapshot = replace(tried.snapshot, find_room=at_once(no_room))
    assert not tried.beside_others(more(2), preemption=True).starts
    assert searched
    searched.clear()
    assert not tried.helps(more(2), is_own=False)
    assert not searched


def test_an_idle_reservation_that_goes_for_a_pod_lets_it_start() -> None:
    tried = tries(node(gpus=1), reservation("g", "n1"), pod("p", gpus=1))
    assert tried.outcome().frees_device
    assert tried.helps(is_own=False)


def test_pods_that_are_evicted_for_it_let_it_start_and_are_named() -> None:
    labels = {"kai.scheduler/queue": "team"}
    made = cluster(
        queue("team", gpu=(0, 1, -1)),
        node(gpus=1),
        pod("low", gpus=1, bound_to="n1", labels=labels, priority=10),
        pod("p", gpus=1, labels=labels, priority=50),
        settings=Settings(),
    )
    room = trying(made).outcome().room
    assert room is not None
    assert [victim.name for victim in room.victims] == ["low"]


def test_nodes_are_counted_by_reason_for_the_group_alone_as_things_are() -> None:
    tried = tries(node(gpus=1), pod("p", gpus=2), pod("q", gpus=3, created=OLD))
    as_it_is = tried.outcome().verdict
    assert as_it_is is not None
    assert as_it_is.node_reasons
    others = [tried.beside_others(preemption=False), tried.outcome(WithoutPods(("uid-q",)))]
    assert [each.verdict and (each.verdict.code, each.verdict.node_reasons) for each in others] == [
        (Code.NO_NODE_FITS, ())
    ] * 2


def test_trying_changes_nothing_and_counts_its_decisions() -> None:
    made = cluster(node(gpus=1), bound(pod("tenant", gpus=1), "n1"), pod("p", gpus=1), pod("q", gpus=1, created=OLD))
    made.prepared(0)
    before = footprint(made)
    tried = trying(made)
    assert not tried.helps(WithoutPods(("uid-tenant",)), is_own=False)
    assert tried.tries == 3  # alone, as things are, and beside the others
    assert tried.outcome().verdict == tried.outcome().verdict
    assert tried.tries == 4
    assert footprint(made) == before
