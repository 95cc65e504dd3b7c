"""Claims that two schedulers gave more than there is find each other, whichever of them looks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.claims.devices_in_use import Taken, clashes
from scheduler.core.model.devices import DeviceResult
from tests.scheduler.core.claims.world import has, inventory, taken
from tests.scheduler.core.device_objects import device, devices
from wire.quantity import NANO


def _drawing(name: str, count: str, counter: str = "slices") -> dict[str, Any]:
    return device(name, consumesCounters=[{"counterSet": "card", "counters": {counter: {"value": count}}}])


_COUNTERS = [{"name": "card", "counters": {"slices": {"value": "4"}, "other": {"value": "1"}}}]
_SHARED = device("shared", allowMultipleAllocations=True, capacity={"memory": {"value": "4"}, "cores": {"value": "8"}})
_MADE = inventory(
    devices("n1-counters", pool="n1", count=2, sharedCounters=_COUNTERS),
    devices(
        "n1",
        device("a"),
        _SHARED,
        _drawing("half", "2"),
        _drawing("other-half", "2"),
        _drawing("most", "3"),
        _drawing("x", "1", "other"),
        pool="n1",
        count=2,
    ),
)


def _part(nano: int) -> DeviceResult:
    return msgspec.structs.replace(has("shared")[0], consumed=(("memory", nano * NANO),))


@pytest.mark.parametrize(
    ("mine", "others", "clash"),
    [
        (has("a"), has("a"), True),
        (has("a"), has("half"), False),
        (has("a"), has("a", pool="n2"), False),
        # Parts of a shared device, as long as they fit; and the whole of it.
        ([_part(2)], [_part(2)], False),
        ([_part(2)], [_part(3)], True),
        ([_part(2)], has("shared"), True),
        # Devices that draw more from a counter than it has.
        (has("half"), has("most"), True),
        (has("half"), has("other-half"), False),
        (has("half"), has("x"), False),
        (has("most"), has("x"), False),
        # A pool that is gone, and a device that is.
        (has("a", pool="gone"), has("a", pool="gone"), True),
        (has("gone"), has("gone"), True),
        (
            [msgspec.structs.replace(has("gone")[0], consumed=())] * 2,
            [msgspec.structs.replace(has("gone")[0], consumed=())],
            False,
        ),
    ],
)
def test_claims_that_have_more_than_there_is_find_each_other(
    mine: list[DeviceResult], others: list[DeviceResult], *, clash: bool
) -> None:
    used = taken(me=mine, other=others)
    assert set(clashes("me", _MADE.view(), used)) == ({"other"} if clash else set())
    assert set(clashes("other", _MADE.view(), used)) == ({"me"} if clash else set())


def test_the_device_is_named_and_admin_access_clashes_with_nobody() -> None:
    used = taken(me=has("half", "a"), other=has("a"))
    assert clashes("me", _MADE.view(), used) == {"other": has("a")[0]}
    admin = [msgspec.structs.replace(has("a")[0], is_admin=True)]
    assert clashes("admin", _MADE.view(), taken(admin=admin, other=has("a"))) == {}
    assert clashes("nobody", _MADE.view(), Taken()) == {}


def test_a_claim_is_no_clash_with_itself() -> None:
    assert clashes("me", _MADE.view(), taken(me=has("half", "most"))) == {}
