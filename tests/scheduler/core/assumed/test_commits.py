"""What we committed counts from then on, until the API shows it or it is withdrawn (architecture.md)."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.bind_request import PlannedDevice
from scheduler.core.assumed.attempts import State
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Placement
from tests.scheduler.core.objects import (
    NANO,
    bind_request,
    bound,
    changed,
    cluster,
    ended,
    feed,
    free_gpus,
    node,
    pod,
    reservation,
)
from wire import names
from wire.core import Pod

HALF = NANO // 2
WHOLE = pod("w", gpus=2)
SHARE = pod("s", fraction="0.5")


def _placement(of: Pod, *devices: tuple[str, int], number: int = 0, on: str = "n1") -> Placement:
    return Placement(
        pod_uid=of.metadata.uid,
        namespace="ns",
        name=of.metadata.name,
        rv=of.metadata.resource_version,
        node=on,
        devices=tuple(PlannedDevice(group, nano) for group, nano in devices),
        number=number,
    )


def _assumed(of: Pod, *devices: tuple[str, int]) -> Cluster:
    made = cluster(node(), node("n2"), of)
    made.commits.assume(_placement(of, *devices))
    return made


@pytest.mark.parametrize(
    ("state", "groups", "waits"),
    [
        (State.AT_BINDER, {"g1"}, True),
        (State.AT_BINDER, {"g2", "g9"}, True),
        (State.HELD, {"g2"}, True),
        (State.AT_BINDER, {"g9"}, False),
        (State.DIRECT, {"g1"}, False),
        (State.TAKEN_BACK, {"g1"}, False),
    ],
)
def test_a_share_waits_for_each_of_its_devices_until_it_is_taken_back(
    state: State, groups: set[str], waits: bool
) -> None:
    made = cluster(node(), SHARE)
    made.commits.assume(_placement(SHARE, ("g1", HALF), ("g2", HALF)), state)
    flight = made.commits.flight("uid-s")
    assert flight is not None
    assert flight.waits_for(groups) is waits


def test_a_commit_is_charged_at_once() -> None:
    made = _assumed(WHOLE)
    assert free_gpus(made) == 6
    assert made.waiting() == []


@pytest.mark.parametrize(
    "events",
    [
        [changed(WHOLE)],
        [WHOLE],
        [changed(WHOLE, labels={names.TASK_PRIORITY_LABEL: "7"})],
        [changed(WHOLE, annotations={"x": "y"}), WHOLE],
    ],
)
def test_an_event_that_shows_the_pod_unbound_clears_nothing(events: list[Any]) -> None:
    made = _assumed(WHOLE)
    feed(made, *events)
    assert free_gpus(made) == 6
    assert made.is_in_flight("uid-w")


def test_an_answered_write_stays_charged_until_the_pod_is_seen_bound() -> None:
    made = _assumed(WHOLE)
    made.commits.settle("uid-w", attempt=0)
    assert free_gpus(made) == 6
    flight = made.commits.flight("uid-w")
    assert flight is not None
    assert flight.settled
    feed(made, bound(WHOLE, "n1"))
    assert free_gpus(made) == 6
    assert made.commits.flights() == ()


@pytest.mark.parametrize("later", [changed(WHOLE), bound(WHOLE, "n2")])
def test_an_attempt_that_was_broken_off_stays_charged_until_its_pod_is_seen_to_change(later: Pod) -> None:
    made = _assumed(WHOLE)
    made.commits.break_off(_placement(WHOLE))
    assert (free_gpus(made), made.is_in_flight("uid-w"), made.commits.flights()) == (6, True, ())
    assert [record.pod_uid for record in made.commits.departed()] == ["uid-w"]
    feed(made, later)
    assert (free_gpus(made), made.commits.departed()) == (8, ())


def test_an_attempt_that_was_broken_off_late_leaves_a_newer_one_alone() -> None:
    made = _assumed(WHOLE)
    made.commits.assume(_placement(WHOLE, number=1, on="n2"))
    made.commits.break_off(_placement(WHOLE))
    assert (free_gpus(made), free_gpus(made, "n2"), made.commits.departed()) == (8, 6, ())


def test_a_pod_that_was_bound_elsewhere_is_charged_there() -> None:
    made = _assumed(WHOLE)
    feed(made, bound(WHOLE, "n2"))
    assert (free_gpus(made), free_gpus(made, "n2")) == (8, 6)


@pytest.mark.parametrize("how", ["deleted", "ended"])
def test_a_pod_that_is_gone_is_in_flight_no_more(how: str) -> None:
    made = _assumed(WHOLE)
    if how == "deleted":
        made.remove_pod("uid-w")
    else:
        feed(made, ended(WHOLE))
    assert free_gpus(made) == 8


@pytest.mark.parametrize(
    ("objects", "state", "free"),
    [
        ([], State.AT_BINDER, 7),
        ([bind_request(SHARE, "n1", ("g", HALF))], State.AT_BINDER, 7),
        ([], State.HELD, 8),
        ([reservation("g")], State.DIRECT, 7),
    ],
)
def test_a_device_that_was_to_be_opened_for_a_pod_that_is_gone_is_charged_until_it_is_seen(
    objects: list[Any], state: State, free: int
) -> None:
    made = cluster(node(), SHARE, *objects)
    made.commits.assume(_placement(SHARE, ("g", HALF)), state)
    made.remove_pod("uid-s")
    assert (free_gpus(made), bool(made.commits.departed())) == (free, state is State.AT_BINDER)
    feed(made, reservation("g"))
    made.remove_bind_request("ns", "s")
    assert (free_gpus(made), made.commits.departed()) == (7, ())


def test_a_withdrawn_attempt_gives_back_what_it_held_and_the_pod_waits_again() -> None:
    made = _assumed(WHOLE)
    made.commits.release("uid-w", attempt=0)
    assert free_gpus(made) == 8
    assert [record.uid for record in made.waiting()] == ["uid-w"]
    assert made.next_number("uid-w") == 1


def test_a_late_withdrawal_of_an_older_attempt_leaves_the_newer_one_charged() -> None:
    made = _assumed(WHOLE)
    made.commits.release("uid-w", attempt=0)
    made.commits.assume(_placement(WHOLE, number=1))
    made.commits.release("uid-w", attempt=0)
    made.commits.settle("uid-w", attempt=0)
    assert free_gpus(made) == 6
    flight = made.commits.flight("uid-w")
    assert flight is not None
    assert not flight.settled


def test_a_pod_that_is_not_known_can_not_be_committed() -> None:
    made = cluster(node())
    with pytest.raises(LookupError, match="ns/w"):
        made.commits.assume(_placement(WHOLE))


def test_a_pod_that_is_bound_already_is_not_charged_twice() -> None:
    made = cluster(node(), bound(WHOLE, "n1"))
    made.commits.assume(_placement(WHOLE))
    assert free_gpus(made) == 6


ORDERS = [
    ["reservation", "bound"],
    ["bound", "reservation"],
    ["request", "reservation", "bound", "request gone"],
    ["request", "bound", "reservation", "request gone"],
    ["request", "request gone", "reservation", "bound"],
    ["reservation", "request", "bound", "request gone"],
]


@pytest.mark.parametrize("order", ORDERS)
def test_a_new_group_holds_one_device_in_whatever_order_its_events_come(order: list[str]) -> None:
    made = _assumed(SHARE, ("g", HALF))
    assert free_gpus(made) == 7
    for event in order:
        match event:
            case "reservation":
                feed(made, reservation("g", book={"uid-s": HALF}))
            case "bound":
                feed(made, bound(SHARE, "n1", ("g", HALF)))
            case "request":
                feed(made, bind_request(SHARE, "n1", ("g", HALF)))
            case _:
                made.remove_bind_request("ns", "s")
        assert free_gpus(made) == 7, event


def test_a_restart_finds_what_is_under_way_in_the_hand_overs() -> None:
    made = cluster(node(), bind_request(SHARE, "n1", ("g", HALF)), SHARE)
    assert free_gpus(made) == 7
    assert made.waiting() == []


def test_a_commit_and_its_hand_over_on_two_nodes_count_on_both() -> None:
    made = _assumed(SHARE, ("g", HALF))
    feed(made, bind_request(SHARE, "n2", ("h", HALF)))
    assert (free_gpus(made), free_gpus(made, "n2")) == (7, 7)


def test_a_pod_that_is_being_deleted_is_not_placed() -> None:
    made = cluster(node(), pod("d", gpus=1, deleting=True))
    assert made.waiting() == []
