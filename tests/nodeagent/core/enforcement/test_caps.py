from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.book import Book, Entry
from gpu.reservation import Reservation
from nodeagent.core.enforcement.caps import Tenancy, caps, tenancies
from nodeagent.core.enforcement.messages import MOST_CAPS, Frames, read_caps, write_caps
from wire import names

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"
CARD = "GPU-1"
MEMORY = {CARD: 80_000, "GPU-2": 40_000}
HALF = 500_000_000


def entry(nano: int = HALF, **more: Any) -> Entry:
    return Entry(nano, "a", "1", 0, "team/p", **more)


def reservation(entries: dict[str, Entry] | None, uuid: str = CARD, **more: Any) -> Reservation:
    plain: dict[str, Any] = {
        "group": "g",
        "namespace": "n",
        "name": "r",
        "uid": "u",
        "rv": "1",
        "node": "node-1",
        "phase": names.RUNNING,
        "index": 0,
        "mem_mib": 0,
        "deleting": False,
        "finalized": True,
    }
    book = None if entries is None else Book(entries)
    return Reservation(**{**plain, "uuid": uuid, "book": book, **more})


@pytest.mark.parametrize(
    ("one", "cap_mib"),
    [
        (entry(), 0),
        (entry(cap_mib=1024), 1024),
        (entry(cap_nano=HALF), 40_000),
        (entry(cap_nano=333_333_333), 26_666),
        # A limit above the charge, and one above the card.
        (entry(nano=1, cap_mib=60_000), 60_000),
        (entry(cap_mib=90_000), 80_000),
    ],
)
def test_a_cap_is_what_the_entry_says(one: Entry, cap_mib: int) -> None:
    (found,) = tenancies([reservation({POD: one})], MEMORY)
    assert found.cap_mib == cap_mib
    assert caps([found]) == ({(POD, CARD): cap_mib} if cap_mib else {})


def test_a_tenancy_says_who_holds_what() -> None:
    (found,) = tenancies([reservation({POD: entry(nano=250_000_000, mode="mps")})], MEMORY)
    assert found == Tenancy(POD, "team/p", CARD, 250_000_000, 20_000, 0, "mps")


@pytest.mark.parametrize(
    "held",
    [
        reservation({POD: entry(cap_mib=5)}, uuid=""),
        reservation(None),
        reservation({POD: entry(cap_mib=5)}, phase=names.FAILED),
        reservation({}),
    ],
)
def test_without_device_or_book_nobody_is_capped(held: Reservation) -> None:
    assert tenancies([held], MEMORY) == ()


def test_a_device_whose_memory_is_not_known_caps_nobody() -> None:
    assert caps(tenancies([reservation({POD: entry(cap_mib=5)}, uuid="GPU-9")], MEMORY, cap_all=True)) == {}


@pytest.mark.parametrize(
    ("held", "doubtful"),
    [
        ([reservation({POD: entry(cap_mib=5)})], [False]),
        ([reservation({POD: entry()})], [False]),
        ([reservation({POD: entry(cap_mib=5)}, uuid="GPU-9")], [True]),
        ([reservation({POD: entry(cap_nano=HALF)}, uuid="GPU-9")], [True]),
        ([reservation({POD: entry()}, uuid="GPU-9")], [False]),
        ([reservation({POD: entry(cap_mib=5)}), reservation({OTHER: entry()})], [False, True]),
    ],
)
def test_a_cap_of_a_book_that_nobody_can_tell_here_is_doubtful(held: list[Reservation], doubtful: list[bool]) -> None:
    assert [one.is_doubtful for one in tenancies(held, MEMORY)] == doubtful


def test_compute_is_what_the_entry_asks() -> None:
    held = reservation({POD: entry(compute_percent=30), OTHER: entry()})
    assert {one.pod_uid: one.compute_percent for one in tenancies([held], MEMORY)} == {POD: 30, OTHER: 0}


def test_where_two_reservations_claim_a_device_nobody_is_capped_on_it() -> None:
    two = [reservation({POD: entry(cap_mib=5)}), reservation({OTHER: entry(cap_mib=5)})]
    third = reservation({POD: entry(cap_mib=7)}, uuid="GPU-2")
    assert caps(tenancies([*two, third], MEMORY)) == {(POD, "GPU-2"): 7}
    gone = [two[0], reservation({OTHER: entry(cap_mib=5)}, phase=names.SUCCEEDED)]
    assert caps(tenancies(gone, MEMORY)) == {(POD, CARD): 5}


def test_where_all_are_capped_the_charge_is_the_cap_of_who_wishes_none() -> None:
    held = reservation({POD: entry(nano=250_000_000), OTHER: entry(nano=250_000_000, cap_mib=30_000)})
    assert caps(tenancies([held], MEMORY, cap_all=True)) == {(POD, CARD): 20_000, (OTHER, CARD): 30_000}


def test_what_a_warden_would_not_take_is_left_out_and_the_others_are_sent() -> None:
    held = reservation({"forged": entry(cap_mib=5), POD: entry(cap_mib=5)})
    found = caps(tenancies([held], MEMORY))
    assert found == {(POD, CARD): 5}
    many = [Tenancy(f"{number:08x}{POD[8:]}", "t/p", CARD, 1, 1, 1) for number in range(MOST_CAPS + 5)]
    (message,) = Frames().cut(write_caps(caps(many)))
    assert len(read_caps(message)) == MOST_CAPS


ENTRIES = st.builds(
    entry,
    st.integers(1, HALF),
    cap_mib=st.integers(0, 2**40),
    cap_nano=st.integers(0, 10**9),
)
BOOKS = st.dictionaries(st.sampled_from([POD, OTHER, "forged", ""]), ENTRIES)


@given(st.lists(st.builds(reservation, st.none() | BOOKS, st.sampled_from(["", CARD, "GPU-2", "GPU-9", "\x00"]))))
def test_of_any_books_all_caps_can_be_sent_and_are_within_the_card(held: list[Reservation]) -> None:
    found = caps(tenancies(held, MEMORY))
    (message,) = Frames().cut(write_caps(found))
    assert read_caps(message) == found
    assert all(0 < mib <= MEMORY[device] for (_, device), mib in found.items())
