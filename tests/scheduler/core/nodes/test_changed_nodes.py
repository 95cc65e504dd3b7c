"""Which nodes changed, and which changes may help a pod that did not fit there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.nodes.ledger import Changes, may_take_more
from scheduler.core.nodes.table import Device
from tests.sharing.made import reservation

DEVICE = Device(
    group="g",
    free_nano=500,
    card_mib=1_000,
    is_open=False,
    reservation=reservation(uuid=""),
    modes=("mps",),
    free_compute_percent=50,
)


@pytest.mark.parametrize(
    ("change", "may_help"),
    [
        ({}, False),
        ({"free_nano": 501}, True),
        ({"free_nano": 499}, False),
        ({"free_compute_percent": 51}, True),
        ({"free_compute_percent": 49}, False),
        ({"is_open": True}, True),
        ({"is_idle": True}, True),
        ({"is_leaving": True}, True),
        ({"reservation": reservation()}, True),
        ({"modes": ()}, True),
        ({"modes": ("mps", "time")}, True),
        ({"card_mib": 2_000}, True),
        ({"resource": "nvidia.com/mig-1g.5gb"}, True),
    ],
    ids=str,
)
def test_a_device_that_changed_may_help_if_it_has_more_or_other_things(change: dict[str, Any], may_help: bool) -> None:
    changed = msgspec.structs.replace(DEVICE, **change)
    assert may_take_more((DEVICE,), (changed,)) is may_help


@pytest.mark.parametrize("lost", [{"is_open": False}, {"is_idle": False}, {"is_leaving": False}], ids=str)
def test_what_a_device_only_lost_helps_nobody(lost: dict[str, Any]) -> None:
    had = msgspec.structs.replace(DEVICE, **dict.fromkeys(lost, True))
    assert not may_take_more((had,), (msgspec.structs.replace(had, **lost),))


@pytest.mark.parametrize(
    ("change", "may_help"),
    [({}, False), ({"is_open": True}, True), ({"is_idle": True}, True), ({"is_leaving": True}, True)],
)
def test_a_new_device_helps_if_it_takes_tenants_or_will_be_free(change: dict[str, Any], may_help: bool) -> None:
    assert may_take_more((), (msgspec.structs.replace(DEVICE, **change),)) is may_help


def test_a_device_that_is_gone_helps_nobody_by_itself() -> None:
    assert not may_take_more((DEVICE,), ())


def test_rows_that_changed_are_known_and_of_these_those_that_may_help() -> None:
    changes = Changes()
    changes.grow(4)
    changes.note(1, may_help=True)
    number = changes.last
    assert changes.changed_since(number) == []
    changes.note(2, may_help=False)
    changes.grow(8)
    changes.note(7, may_help=True)
    assert (changes.changed_since(number), changes.helped_since(number)) == ([2, 7], [7])
    assert changes.changed_since(0) == [1, 2, 7]
