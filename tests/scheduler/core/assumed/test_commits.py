"""What we committed counts from then on, until the API shows it or it is withdrawn (architecture.md)."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.bind_request import PlannedDevice
from scheduler.core.assumed.attempts import State
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Attempt, Explain, Hold, Join, Placement
from scheduler.core.nodes.table import CPU, GPUS, PODS
from tests.scheduler.core.objects import (
    NANO,
    bind_request,
    bound,
    changed,
    cluster,
    commit,
    ended,
    feed,
    free_gpus,
    node,
    pod,
    reservation,
)
from tests.values import there
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
    flight = there(made.commits.flight("uid-s"))
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
    flight = there(made.commits.flight("uid-w"))
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
    flight = there(made.commits.flight("uid-w"))
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


# A further share waits, charged, for the device that a first share is about to make known.

FIRST, SECOND, THIRD = (pod(name, fraction="0.5") for name in ("a", "b", "c"))


def _opened() -> tuple[Cluster, str]:
    """Two halves of one card, the first at the binder; and the name of their group."""
    made = cluster(node(gpus=1), FIRST, SECOND)
    plan = made.decide(0)
    assert [type(entry) for entry in plan.entries] == [Attempt, Hold]
    commit(made, plan)
    flight = there(made.commits.flight("uid-a"))
    return made, flight.placement.devices[0].group


def test_the_second_share_of_a_new_device_is_held_in_the_same_decision() -> None:
    made, group = _opened()
    held = there(made.commits.flight("uid-b"))
    assert held.placement.devices[0].group == group


def test_a_share_that_comes_later_is_held_as_well() -> None:
    made = cluster(node(gpus=1), FIRST)
    commit(made, made.decide(0))
    feed(made, SECOND)
    assert [type(entry) for entry in made.decide(0).entries] == [Hold]


def test_what_is_held_is_charged() -> None:
    made, _ = _opened()
    feed(made, THIRD)
    assert not any(isinstance(entry, (Attempt, Hold, Join)) for entry in made.decide(0).entries)
    ledger = made.refresh()
    assert int(ledger.table.free[GPUS, ledger.row_of["n1"]]) == 0
    assert made.validate() == []


def test_it_joins_when_the_first_share_is_bound() -> None:
    made, group = _opened()
    feed(made, reservation(group, book={"uid-a": HALF}, uuid="GPU-1", uid="r1"))
    assert made.decide(0).entries == ()
    feed(made, bound(FIRST, "n1", (group, HALF), reservation="r1", uuid="GPU-1"))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Join)
    assert entry.placement.devices[0].group == group


def test_it_goes_first_itself_when_the_first_share_failed() -> None:
    made, _ = _opened()
    made.commits.failed("uid-a", "", "Refused", now_ns=0)
    made.commits.release("uid-a", attempt=0)
    entries = [entry for entry in made.decide(0).entries if isinstance(entry, (Attempt, Hold))]
    assert [(type(entry), entry.placement.name) for entry in entries] == [(Attempt, "b")]


def test_it_goes_first_itself_when_the_first_share_is_deleted() -> None:
    made, _ = _opened()
    made.remove_pod("uid-a")
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Attempt)
    assert entry.placement.name == "b"


def test_a_share_that_is_deleted_while_it_is_held_leaves_nothing_behind() -> None:
    made, group = _opened()
    made.remove_pod("uid-b")
    feed(made, THIRD)
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Hold)
    assert entry.placement.devices[0].group == group
    assert made.validate() == []


def test_one_that_waits_for_two_devices_goes_on_waiting_for_the_second() -> None:
    both = pod("both", fraction="0.3", devices=2)
    made = cluster(node(gpus=2), pod("a", fraction="0.7"), pod("b", fraction="0.6"))
    commit(made, made.decide(0))
    feed(made, both)
    commit(made, made.decide(0))
    made.remove_pod("uid-a")
    made.commits.forget_departed("uid-a")
    feed(made, pod("a2", fraction="0.7"))
    plan = made.decide(0)
    assert made.is_in_flight("uid-both") is False
    assert [type(entry) for entry in plan.entries if isinstance(entry, (Attempt, Hold))] == [Attempt, Hold]


def test_one_that_waited_for_two_devices_and_went_elsewhere_stays_charged_there() -> None:
    made = cluster(node("a", gpus=2), pod("a", fraction="0.7"), pod("b", fraction="0.6"))
    commit(made, made.decide(0))
    feed(made, pod("both", fraction="0.3", devices=2))
    commit(made, made.decide(0))
    made.remove_pod("uid-a")
    flight = there(made.commits.flight("uid-b"))
    elsewhere = Placement(
        pod_uid="uid-both",
        namespace="ns",
        name="both",
        rv="1",
        node="a",
        devices=(PlannedDevice("elsewhere", NANO // 3),),
        number=made.next_number("uid-both"),
    )
    made.commits.assume(elsewhere)
    made.commits.release("uid-b", attempt=flight.placement.number)
    assert made.is_in_flight("uid-both")
    assert made.validate() == []


def test_a_share_that_needs_the_binder_anyway_is_not_held() -> None:
    source = {"configMapKeyRef": {"name": "maps-0", "key": names.ENV_VISIBLE_DEVICES}}
    env = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": source}]
    by_config_map = pod(
        "b",
        fraction="0.5",
        admitted=False,
        annotations={names.SHARED_GPU_CONFIGMAP: "maps"},
        spec={"containers": [{"name": "main", "env": env}]},
    )
    made = cluster(node(gpus=1), FIRST, by_config_map)
    assert [type(entry) for entry in made.decide(0).entries] == [Attempt, Attempt]


def test_who_has_waited_too_long_opens_the_device_itself() -> None:
    made, group = _opened()
    assert made.commits.give_up_opening("uid-a", attempt=0)
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Attempt)
    assert entry.placement.pod_uid == "uid-b"
    assert entry.placement.devices[0].group == group
    assert not made.commits.give_up_opening("uid-a", attempt=0)


def test_an_attempt_that_is_over_is_not_given_up_in_the_name_of_a_newer_one() -> None:
    made, _ = _opened()
    assert not made.commits.give_up_opening("uid-a", attempt=1)
    assert made.commits.flight("uid-b") is not None


def test_a_share_whose_device_is_not_made_known_by_anybody_is_decided_on_again() -> None:
    made = cluster(node(gpus=1), FIRST)
    plan = made.decide(0)
    (entry,) = plan.entries
    assert isinstance(entry, Attempt)
    made.commits.hold(entry.placement)
    assert made.commits.flight("uid-a") is None
    assert made.decide(0) is not plan


# BindRequests count while they may lead to anything, and not a moment longer.

TENANT = pod("t", fraction="0.5")


def test_what_the_binder_does_not_carry_out_keeps_nobody_waiting() -> None:
    foreign = bind_request(TENANT, "", ("g", HALF))
    made = cluster(node(), TENANT, foreign)
    assert free_gpus(made) == 8
    assert [waiting.uid for waiting in made.waiting()] == ["uid-t"]


@pytest.mark.parametrize(
    ("later", "counts"),
    [([], True), ([changed(TENANT)], True), ([bound(TENANT, "n2")], False), ([ended(TENANT)], True)],
)
def test_a_hand_over_counts_until_its_pod_is_bound(later: list[Any], counts: bool) -> None:
    made = cluster(node(), node("n2"), TENANT, bind_request(TENANT, "n1", ("g", HALF)), *later)
    assert free_gpus(made) == (7 if counts else 8)
    assert made.is_in_flight("uid-t") == counts


def test_a_pod_that_found_no_room_is_not_placed_a_second_time_when_somebody_hands_it_over() -> None:
    made = cluster(node(gpus=0), TENANT)
    assert [type(entry) for entry in made.decide(0).entries] == [Explain]
    feed(made, bind_request(TENANT, "n1", ("g", HALF)), node(gpus=8))
    assert made.decide(1).entries == ()


def test_a_hand_over_of_a_changed_pod_counts_as_long_as_it_is_there() -> None:
    made = cluster(node(), TENANT, bind_request(TENANT, "n1", ("g", HALF)), changed(TENANT))
    assert made.waiting() == []
    made.remove_bind_request("ns", "t")
    assert free_gpus(made) == 8
    assert [record.uid for record in made.waiting()] == ["uid-t"]


def test_a_hand_over_of_a_version_that_is_not_seen_yet_counts() -> None:
    newer = changed(TENANT)
    made = cluster(node(), TENANT, bind_request(newer, "n1", ("g", HALF)))
    assert free_gpus(made) == 7
    feed(made, newer)
    assert free_gpus(made) == 7


def test_a_hand_over_of_a_pod_that_is_not_seen_yet_counts() -> None:
    made = cluster(node(), bind_request(TENANT, "n1", ("g", HALF)))
    assert free_gpus(made) == 7


def test_of_a_pod_that_is_gone_only_the_device_counts_that_its_hand_over_may_still_open() -> None:
    made = cluster(node(pods=10), pod("t", fraction="0.5", cpu="2"), bind_request(TENANT, "n1", ("g", HALF)))
    made.remove_pod("uid-t")
    ledger = made.refresh()
    row = ledger.row_of["n1"]
    assert (free_gpus(made), ledger.table.free[PODS, row], ledger.table.free[CPU, row]) == (7, 9, 64_000)


WENT = [("pod", "request"), ("request", "pod")]


def _went(made: Cluster, order: tuple[str, str]) -> None:
    for what in order:
        if what == "pod":
            made.remove_pod("uid-t")
        else:
            made.remove_bind_request("ns", "t")


@pytest.mark.parametrize("order", WENT)
def test_a_device_stays_charged_when_pod_and_hand_over_went_until_its_reservation_is_seen(
    order: tuple[str, str],
) -> None:
    made = cluster(node(), TENANT, bind_request(TENANT, "n1", ("g", HALF)))
    _went(made, order)
    assert free_gpus(made) == 7
    assert made.commits.departed_of("uid-t") is not None
    feed(made, reservation("h", uuid="GPU-2"))
    assert free_gpus(made) == 6
    feed(made, reservation("g", book={"uid-t": HALF}))
    assert (free_gpus(made), made.commits.departed()) == (6, ())
    made.remove_pod("r-g")
    assert free_gpus(made) == 7


@pytest.mark.parametrize("order", WENT)
def test_a_device_whose_reservation_was_looked_for_in_vain_is_free_again(order: tuple[str, str]) -> None:
    made = cluster(node(), TENANT, bind_request(TENANT, "n1", ("g", HALF)))
    _went(made, order)
    made.commits.forget_departed("uid-t")
    assert (free_gpus(made), made.commits.departed()) == (8, ())


@pytest.mark.parametrize("order", WENT)
def test_nothing_stays_charged_of_a_pod_that_went_when_its_reservation_was_seen_before(order: tuple[str, str]) -> None:
    made = cluster(node(), TENANT, bind_request(TENANT, "n1", ("g", HALF)), reservation("g", book={"uid-t": HALF}))
    _went(made, order)
    made.remove_pod("r-g")
    assert (free_gpus(made), made.commits.departed()) == (8, ())


def test_a_hand_over_without_a_readable_charge_is_nobodys() -> None:
    made = cluster(node(), TENANT, bind_request(TENANT, "n1", ("g", HALF), handover=False))
    assert free_gpus(made) == 8
    assert not made.is_in_flight("uid-t")


@pytest.mark.parametrize("later", [changed(TENANT), bound(TENANT, "n2")])
def test_a_hand_over_that_is_gone_stays_charged_until_its_pod_is_seen_to_change(later: Any) -> None:
    made = cluster(node(), node("n2"), TENANT, bind_request(TENANT, "n1", ("g", HALF)))
    made.remove_bind_request("ns", "t")
    assert free_gpus(made) == 7
    assert made.is_in_flight("uid-t")
    assert [record.pod_uid for record in made.commits.departed()] == ["uid-t"]
    feed(made, later)
    assert free_gpus(made) == 8
    assert made.commits.departed() == ()


def test_a_hand_over_that_is_gone_after_its_pod_changed_leaves_nothing() -> None:
    made = cluster(node(), TENANT, bind_request(TENANT, "n1", ("g", HALF)), changed(TENANT))
    made.remove_bind_request("ns", "t")
    assert (free_gpus(made), made.commits.departed()) == (8, ())


def test_of_two_hand_overs_of_a_pod_that_are_gone_the_last_one_counts_and_the_ledger_says_so() -> None:
    made = cluster(node(), node("n2"), TENANT, bind_request(TENANT, "n1", ("g", HALF)))
    made.remove_bind_request("ns", "t")
    assert free_gpus(made) == 7
    feed(made, bind_request(TENANT, "n2", ("h", HALF)))
    made.remove_bind_request("ns", "t")
    assert (free_gpus(made), free_gpus(made, "n2")) == (8, 7)
