from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from nodeagent.core.enforcement.messages import (
    MOST_BYTES,
    MOST_HELD,
    MOST_TOLD,
    MOST_VICTIMS,
    Done,
    Frames,
    Limited,
    Report,
    bounded,
    fitting,
    read_report,
    told,
    write_report,
)
from nodeagent.core.enforcement.overuse import Action, Deed, Device, Process, Sample

#: The longest that the warden writes: 64 signs of four bytes each, 64 of a container's id, 36 of a pod's.
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


def deed(victims: int) -> Done:
    many = tuple(Process(1 + number, LARGE, LARGE, 100, pod(0), CONTAINER, NAME) for number in range(victims))
    return Done(Deed(pod(0), "GPU-a", LARGE, 1, Action.END_ALL, many), ("refused",) * victims)


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
    ("devices", "processes", "pods"), [(1, 4_001, 1), (16, 4_000, 500), (448, 64, 64), (8, 9_000, 9_000)]
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


def test_of_a_deed_the_largest_victims_are_told_and_the_others_counted() -> None:
    few = deed(MOST_VICTIMS)
    assert told(few) == few
    many = told(deed(500))
    assert (len(many.deed.victims), len(many.outcomes), many.more) == (MOST_VICTIMS, MOST_VICTIMS, 480)
    assert read(Report(Sample(1), (many,))).done == (many,)


def test_deeds_that_do_not_fit_wait_and_none_is_lost() -> None:
    kept = [told(deed(500)) for _ in range(1_000)]
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


def test_one_deed_goes_whatever_its_size() -> None:
    huge = replace(deed(1), outcomes=("x" * 2_000_000,))
    assert fitting([huge, huge]) == 1
    assert fitting([]) == 0


def test_names_take_no_more_bytes_than_they_have() -> None:
    frame = write_report(Report(Sample(1, (busy("GPU-a", 1, pods=1),))))
    assert NAME.encode() in frame
    assert json.loads(frame[4:])["devices"][0][4][0][6] == NAME


def test_a_report_of_the_most_of_everything_can_be_read() -> None:
    kept = [told(deed(MOST_VICTIMS)) for _ in range(200)]
    sample = bounded(Sample(1, tuple(busy(f"GPU-{number}", 5_000, pods=200) for number in range(8))))
    held = tuple((pod(number), "GPU-" + "f" * 76) for number in range(MOST_HELD + 1))
    report = Report(sample, tuple(kept[: fitting(kept)]), driver=Limited(held, "w" * 100))
    assert read(report).driver == Limited(held[:MOST_HELD], "w" * 100)
