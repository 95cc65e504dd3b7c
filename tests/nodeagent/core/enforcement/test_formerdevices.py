from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gpu.reservation import Reservation
from nodeagent.core.enforcement.caps import FormerDevices, Tenancy, caps, tenancies, with_former
from nodeagent.core.enforcement.overuse import Key
from tests.nodeagent.core.enforcement.test_caps import OTHER, POD, entry, reservation
from wire import names

MEMORY = {f"GPU-{name}": 80_000 for name in "abcdefghijkl"}
A, B = "GPU-a", "GPU-b"


def one(pod: str, device: str, cap_mib: int, *, uid: str = "u", **more: Any) -> Reservation:
    return reservation({pod: entry(cap_mib=cap_mib)} if cap_mib else {}, device, uid=uid, **more)


def after(*looks: Sequence[Reservation]) -> dict[Key, int]:
    """Caps after all of these, one after the other."""
    memory = FormerDevices()
    found: dict[Key, int] = {}
    for held in looks:
        now = tenancies(held, MEMORY)
        found = caps(with_former(now, memory.take(held, now)))
    return found


def test_who_stays_where_he_is_is_capped_there_alone() -> None:
    held = [one(POD, A, 1000)]
    assert after(held, held) == {(POD, A): 1000}


def test_a_tenant_whose_reservation_names_another_device_is_capped_on_both() -> None:
    assert after([one(POD, A, 1000)], [one(POD, B, 1000)]) == {(POD, A): 1000, (POD, B): 1000}
    # Also while it names none.
    assert after([one(POD, A, 1000)], [one(POD, "", 1000)]) == {(POD, A): 1000}


def test_two_that_swap_their_devices_are_each_capped_where_they_run() -> None:
    before = [one(POD, A, 1000, uid="r1"), one(OTHER, B, 2000, uid="r2")]
    swapped = [one(POD, B, 1000, uid="r1"), one(OTHER, A, 2000, uid="r2")]
    found = {(POD, A): 1000, (POD, B): 1000, (OTHER, A): 2000, (OTHER, B): 2000}
    assert after(before, swapped) == after(before, swapped, swapped) == found
    # One after the other: while two name one device nobody can say whose it is.
    assert after(before, [swapped[0], before[1]]) == {(POD, A): 1000}
    assert after(before, [swapped[0], before[1]], swapped) == found


def test_of_two_caps_of_a_pod_on_a_device_the_larger_counts() -> None:
    before = [one(POD, A, 1000, uid="r1"), one(POD, B, 2000, uid="r2")]
    swapped = [one(POD, B, 1000, uid="r1"), one(POD, A, 2000, uid="r2")]
    assert after(before, swapped) == {(POD, A): 2000, (POD, B): 2000}


@pytest.mark.parametrize(("now", "before", "found"), [(1, 2, 2), (2, 1, 2), (0, 2, 0), (2, 0, 2), (0, 0, 0)])
def test_of_two_caps_the_larger_counts_and_none_stays_none(now: int, before: int, found: int) -> None:
    first, other = (Tenancy(POD, "team/p", A, 1, cap_mib=mib) for mib in (now, before))
    assert [each.cap_mib for each in with_former([first], [other])] == [found]


def test_no_cap_is_made_of_a_device_where_the_pod_has_none_now() -> None:
    before = [one(POD, A, 1000, uid="r1"), reservation({POD: entry()}, B, uid="r2")]
    moved = [one(POD, B, 1000, uid="r1"), reservation({POD: entry()}, A, uid="r2")]
    # On A it holds a share without a cap by now.
    assert after(before, moved) == {(POD, B): 1000}


def test_it_ends_with_the_entry_and_with_the_reservation() -> None:
    moved = [one(POD, B, 1000)]
    assert after([one(POD, A, 1000)], moved, []) == {}
    assert after([one(POD, A, 1000)], moved, [one(POD, B, 0)]) == {}
    assert after([one(POD, A, 1000)], moved, [], moved) == {(POD, B): 1000}
    assert after([one(POD, A, 1000)], [one(POD, B, 1000, phase=names.FAILED)], moved) == {(POD, B): 1000}


def test_another_attempt_of_a_pod_was_nowhere_before() -> None:
    again = reservation({POD: msgspec.structs.replace(entry(cap_mib=1000), attempt="b")}, B)
    assert after([one(POD, A, 1000)], [again]) == {(POD, B): 1000}


def test_a_reservation_that_names_ever_new_devices_costs_no_more_than_eight() -> None:
    looks = [[one(POD, device, 1000)] for device in MEMORY]
    assert len(after(*looks)) == 9
