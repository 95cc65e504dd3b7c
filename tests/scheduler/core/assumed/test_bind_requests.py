"""BindRequests count while they may lead to anything, and not a moment longer."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain
from scheduler.core.nodes.table import CPU, PODS
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

HALF = NANO // 2


TENANT = pod("t", fraction="0.5")


def test_what_the_binder_does_not_carry_out_keeps_nobody_waiting() -> None:
    foreign = bind_request(TENANT, "", ("g", HALF))
    made = cluster(node(), TENANT, foreign)
    assert free_gpus(made) == 8
    assert [waiting.uid for waiting in made.waiting()] == ["uid-t"]


@pytest.mark.parametrize(
    ("later", "counts"),
    [
        ([], True),
        ([changed(TENANT)], True),
        ([bound(TENANT, "n2")], False),
        ([ended(TENANT)], True),
    ],
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
