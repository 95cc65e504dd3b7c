from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.book import Book, Entry
from gpu.reservation import Reservation
from nodeagent.core.enforcement.caps import Tenancy, caps, tenancies
from nodeagent.core.enforcement.container_edits import KEPT_S, MOST, Leftovers
from nodeagent.core.enforcement.messages import (
    MOST_BYTES,
    MOST_CAPS,
    MOST_HELD,
    MOST_TOLD,
    MOST_VICTIMS,
    Done,
    Frames,
    Limited,
    Report,
    bounded,
    fitting,
    read_caps,
    read_report,
    told,
    write_caps,
    write_report,
)
from nodeagent.core.enforcement.overuse import Action, Device, Kill, Process, Sample
from tests.quick import few_rows
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


def test_what_an_enforcer_would_not_take_is_left_out_and_the_others_are_sent() -> None:
    held = reservation({"forged": entry(cap_mib=5), POD: entry(cap_mib=5)})
    found = caps(tenancies([held], MEMORY))
    assert found == {(POD, CARD): 5}
    many = [Tenancy(f"{number:08x}{POD[8:]}", "t/p", CARD, 1, 1, 1) for number in range(MOST_CAPS + 5)]
    (message,) = Frames().cut(write_caps(caps(many)))
    assert len(read_caps(message)) == MOST_CAPS


ENTRIES = st.builds(entry, st.integers(1, HALF), cap_mib=st.integers(0, 2**40), cap_nano=st.integers(0, 10**9))
BOOKS = st.dictionaries(st.sampled_from([POD, OTHER, "forged", ""]), ENTRIES)


@given(st.lists(st.builds(reservation, st.none() | BOOKS, st.sampled_from(["", CARD, "GPU-2", "GPU-9", "\x00"]))))
def test_of_any_books_all_caps_can_be_sent_and_are_within_the_card(held: list[Reservation]) -> None:
    found = caps(tenancies(held, MEMORY))
    (message,) = Frames().cut(write_caps(found))
    assert read_caps(message) == found
    assert all(0 < mib <= MEMORY[device] for (_, device), mib in found.items())


def test_a_folder_stays_for_a_day_after_it_was_left() -> None:
    left = Leftovers()
    assert left.expired({"a"}, 5.0) == frozenset()
    assert left.expired({"a", "b"}, 4.0 + KEPT_S) == frozenset()
    assert left.expired({"a", "b"}, 5.0 + KEPT_S) == {"a"}


def test_a_tenant_that_comes_back_begins_another_day_when_it_goes() -> None:
    left = Leftovers()
    left.expired({"a"}, 0.0)
    left.expired((), 10.0)
    assert left.expired({"a"}, KEPT_S) == frozenset()
    assert left.expired({"a"}, 2 * KEPT_S) == {"a"}


def test_of_too_many_those_go_that_were_left_first() -> None:
    left = Leftovers()
    left.expired({"first", "second"}, 0.0)
    many = {f"x{number}" for number in range(MOST - 1)}
    assert left.expired({"first", "second"} | many, 1.0) == {"first"}
    assert left.expired({"second"} | many, 2.0) == frozenset()


#: The longest that the memory enforcer writes: 64 signs of four bytes each, 64 of a container's id, 36 of a pod's.
NAME, CONTAINER = "\U0001f600" * 64, "f" * 64
LARGE = 2**64 - 1


def pod(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def busy(uuid: str, processes: int, *, pods: int) -> Device:
    many = (
        Process(1 + number, LARGE, 1_000_000 + number, number % 3, pod(number % pods), CONTAINER, NAME)
        for number in range(processes)
    )
    return Device(uuid, LARGE, LARGE, tuple(many), 100)


def kill(victims: int) -> Done:
    many = tuple(Process(1 + number, LARGE, LARGE, 100, pod(0), CONTAINER, NAME) for number in range(victims))
    return Done(Kill(pod(0), "GPU-a", LARGE, 1, Action.END_ALL, many), ("refused",) * victims)


def read(report: Report) -> Report:
    frame = write_report(report)
    assert len(frame) <= MOST_BYTES
    (message,) = Frames().cut(frame)
    return read_report(message)


def test_a_look_at_few_processes_is_reported_as_it_is() -> None:
    sample = Sample(1, (busy("GPU-a", MOST_TOLD // 2, pods=9), busy("GPU-b", MOST_TOLD // 2, pods=3)))
    assert bounded(sample) is sample
    assert read(Report(sample)) == Report(sample)


@pytest.mark.parametrize(
    ("devices", "processes", "pods"), few_rows([(1, 4_001, 1), (16, 4_000, 500), (448, 64, 64), (8, 9_000, 9_000)], 4)
)
def test_of_many_processes_the_largest_are_told_and_the_sums_stay_true(devices: int, processes: int, pods: int) -> None:
    sample = Sample(1, tuple(busy(f"GPU-{number}", processes, pods=pods) for number in range(devices)))
    found = read(Report(bounded(sample)))
    assert found.told_together > 0
    for before, after in zip(sample.devices, found.sample.devices, strict=True):
        assert sum(one.count for one in after.processes) == processes
        assert sum(one.used_bytes or 0 for one in after.processes) == sum(
            one.used_bytes or 0 for one in before.processes
        )
        one_by_one = [one for one in after.processes if one.pid]
        largest = sorted(before.processes, key=lambda one: -(one.used_bytes or 0))
        assert one_by_one == largest[: len(one_by_one)]
        by_pod = [Counter[str](), Counter[str]()]
        for counter, device in zip(by_pod, (before, after), strict=True):
            for one in device.processes:
                counter[one.pod_uid] += one.used_bytes or 0
        # No pod has more than it uses; what a pod uses is its own item, or belongs to nobody.
        assert all(used <= by_pod[0][uid] for uid, used in by_pod[1].items() if uid)
        if pods <= 64 and devices < 448:
            assert by_pod[0] == by_pod[1]


def test_memory_that_is_not_told_of_one_is_not_told_of_all_that_are_told_together() -> None:
    device = busy("GPU-a", MOST_TOLD + 10, pods=1)
    smallest = replace(device.processes[0], used_bytes=None)
    (found,) = bounded(Sample(1, (replace(device, processes=(smallest, *device.processes[1:])),))).devices
    assert [one.used_bytes for one in found.processes if not one.pid] == [None]


def test_of_a_kill_the_largest_victims_are_told_and_the_others_counted() -> None:
    few = kill(MOST_VICTIMS)
    assert told(few) == few
    many = told(kill(500))
    assert (len(many.kill.victims), len(many.outcomes), many.more) == (MOST_VICTIMS, MOST_VICTIMS, 480)
    assert read(Report(Sample(1), (many,))).done == (many,)


@pytest.mark.thorough
def test_kills_that_do_not_fit_wait_and_none_is_lost() -> None:
    kept = [told(kill(500)) for _ in range(1_000)]
    rounds = 0
    while kept:
        sent = fitting(kept)
        sample = bounded(Sample(1, tuple(busy(f"GPU-{number}", 4_000, pods=500) for number in range(16))))
        assert len(read(Report(sample, tuple(kept[:sent]))).done) == sent > 0
        del kept[:sent]
        rounds += 1
        if rounds == 2:  # the same from here on, and slow
            break
    assert 1_000 - len(kept) >= 2 * 50


def test_one_kill_goes_whatever_its_size() -> None:
    huge = replace(kill(1), outcomes=("x" * 2_000_000,))
    assert fitting([huge, huge]) == 1
    assert fitting([]) == 0


def test_names_take_no_more_bytes_than_they_have() -> None:
    frame = write_report(Report(Sample(1, (busy("GPU-a", 1, pods=1),))))
    assert NAME.encode() in frame
    assert json.loads(frame[4:])["devices"][0][4][0][6] == NAME


def test_a_report_of_the_most_of_everything_can_be_read() -> None:
    kept = [told(kill(MOST_VICTIMS)) for _ in range(200)]
    sample = bounded(Sample(1, tuple(busy(f"GPU-{number}", 5_000, pods=200) for number in range(8))))
    held = tuple((pod(number), "GPU-" + "f" * 76) for number in range(MOST_HELD + 1))
    report = Report(sample, tuple(kept[: fitting(kept)]), driver=Limited(held, "w" * 100))
    assert read(report).driver == Limited(held[:MOST_HELD], "w" * 100)
