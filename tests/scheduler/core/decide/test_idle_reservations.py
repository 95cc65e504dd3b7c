"""Idle reservations are capacity: for shares at once, for whole GPUs by removing them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.plan import Attempt, Bind, Explain, Gang, Retire
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.table import GPUS
from tests.scheduler.core.objects import NANO, bind_request, changed, cluster, feed, node, pod, pod_group, reservation

SHARE = pod("s", fraction="0.5")


def _entries(*objects: Any) -> list[Any]:
    return list(cluster(*objects).decide(0).entries)


def _retired(entries: list[Any]) -> list[str]:
    return [entry.reservation_uid for entry in entries if isinstance(entry, Retire)]


def test_a_share_takes_an_idle_reservation() -> None:
    (entry,) = _entries(node(gpus=1), reservation("g"), SHARE)
    assert isinstance(entry, Attempt)
    assert entry.placement.devices[0].group == "g"


def test_a_whole_gpu_pod_has_an_idle_reservation_removed_and_waits_for_its_device() -> None:
    entries = _entries(node(gpus=1), reservation("g"), pod("w", gpus=1))
    assert _retired(entries) == ["r-g"]
    assert entries[0].for_pod == "uid-w"
    explain = entries[1]
    assert isinstance(explain, Explain)
    assert (explain.verdict.code, explain.verdict.detail, explain.pods) == (Code.WAITING_FOR_DEVICE, "n1", ("uid-w",))


def test_while_its_device_is_on_the_way_back_no_second_one_is_removed() -> None:
    made = cluster(node(gpus=2), reservation("g"), reservation("h", uuid="GPU-2"), pod("w", gpus=1))
    assert _retired(list(made.decide(0).entries)) == ["r-g"]
    feed(made, changed(reservation("g"), deletion_timestamp="2026-01-01T00:00:00Z"))
    plan = made.decide(0)
    assert _retired(list(plan.entries)) == []
    assert isinstance(plan.entries[0], Explain)
    assert plan.entries[0].verdict.code is Code.WAITING_FOR_DEVICE
    made.remove_pod("r-g")
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]


@pytest.mark.parametrize(
    "busy",
    [
        [reservation("g", book={"x": 1})],
        [reservation("g"), SHARE, bind_request(SHARE, "n1", ("g", NANO // 2))],
        [reservation("g", has_book=False)],
    ],
)
def test_a_reservation_with_tenants_or_somebody_on_the_way_is_never_removed(busy: list[Any]) -> None:
    entries = _entries(node(gpus=1), *busy, pod("w", gpus=1))
    assert _retired(entries) == []
    assert entries[-1].verdict.code is Code.NO_NODE_FITS


def test_a_free_device_is_taken_before_anything_is_removed() -> None:
    entries = _entries(node(gpus=2), reservation("g"), pod("w", gpus=1))
    assert [type(entry) for entry in entries] == [Bind]


def test_only_as_many_are_removed_as_are_needed_and_where_the_fewest_are() -> None:
    objects = [
        node("n1", 4),
        *(reservation(f"a{i}", "n1", uuid=f"GPU-a{i}") for i in range(4)),
        node("n2", 4),
        *(reservation(f"b{i}", "n2", uuid=f"GPU-b{i}") for i in range(2)),
    ]
    assert _retired(_entries(*objects, pod("w", gpus=3))) == ["r-b0"]


def test_shares_do_not_enter_a_device_that_is_being_given_back() -> None:
    later = pod("later", fraction="0.5", created="2026-02-01T00:00:00Z")
    entries = _entries(node(gpus=1), reservation("g"), pod("w", gpus=1), later)
    assert [type(entry) for entry in entries] == [Retire, Explain, Explain]


def test_two_pods_do_not_wait_for_the_same_device() -> None:
    entries = _entries(
        node(gpus=2), reservation("g"), reservation("h", uuid="GPU-2"), *(pod(f"w{i}", gpus=1) for i in range(3))
    )
    assert sorted(_retired(entries)) == ["r-g", "r-h"]
    codes = {uid: e.verdict.code for e in entries if isinstance(e, Explain) for uid in e.pods}
    assert codes == {"uid-w0": Code.WAITING_FOR_DEVICE, "uid-w1": Code.WAITING_FOR_DEVICE, "uid-w2": Code.NO_NODE_FITS}


def test_a_node_that_lacks_something_else_is_not_robbed_in_vain() -> None:
    assert _retired(_entries(node(gpus=1, cpu="1"), reservation("g"), pod("w", gpus=1, cpu="2"))) == []
    assert _retired(_entries(node(gpus=1, cordoned=True), reservation("g"), pod("w", gpus=1))) == []


def test_a_gang_has_room_made_for_it_only_if_all_of_it_fits_then() -> None:
    members = [pod(f"m{i}", group="g", gpus=1) for i in range(3)]
    objects = [pod_group("g", 3), *members, reservation("x"), reservation("y", uuid="GPU-2")]
    entries = _entries(node(gpus=3), *objects)
    assert sorted(_retired(entries)) == ["r-x", "r-y"]
    assert entries[-1].verdict.code is Code.WAITING_FOR_DEVICE
    entries = _entries(node(gpus=2), *objects)
    assert _retired(entries) == []
    assert entries[-1].verdict.code is Code.GANG_INCOMPLETE


def test_a_gang_starts_when_its_devices_are_back() -> None:
    members = [pod(f"m{i}", group="g", gpus=1) for i in range(2)]
    made = cluster(node(gpus=2), reservation("x"), pod_group("g", 2), *members)
    assert _retired(list(made.decide(0).entries)) == ["r-x"]
    made.remove_pod("r-x")
    assert [type(entry) for entry in made.decide(0).entries] == [Gang]
    ledger = made.refresh()
    assert ledger.table.free[GPUS, ledger.row_of["n1"]] == 2


@pytest.mark.parametrize("devices", [[reservation("g")], []])
def test_a_device_that_a_share_was_just_given_is_not_given_back_for_a_whole_one(devices: list[Any]) -> None:
    """Neither the idle one that it joined, nor the new one that it opened."""
    first, second = _entries(node(gpus=1), *devices, SHARE, pod("w", gpus=1, created="2026-01-02T00:00:00Z"))
    assert isinstance(first, Attempt)
    assert isinstance(second, Explain)
    assert (second.verdict.code, second.pods) == (Code.NO_NODE_FITS, ("uid-w",))
