from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.node_use import STRENGTHS
from nodeagent.core.enforcement.caps import Tenancy, is_weaker, strongest
from nodeagent.core.enforcement.messages import (
    MOST_BYTES,
    MOST_CAPS,
    MOST_HELD,
    Done,
    Frames,
    Limited,
    MalformedMessage,
    Report,
    framed,
    read_caps,
    read_report,
    write_caps,
    write_report,
)
from nodeagent.core.enforcement.overuse import MIB, Action, Device, Kill, Process, Sample
from nodeagent.core.enforcement.tenants import (
    STALE_NS,
    DeviceMeasures,
    Measures,
    TenantMeasures,
    TenantTable,
    TenantUse,
    counted,
    measures,
)
from tests.nodeagent.core.enforcement.test_caps import CARD, MEMORY, OTHER, POD, entry, reservation

SECOND = 10**9
HELD = [reservation({POD: entry(nano=250_000_000, cap_mib=30_000), OTHER: entry(nano=500_000_000)})]


def report(at_ns: int = 0, *done: Done, mib: int = 10_000, caps: int | None = 1, dry: bool = False) -> Report:
    device = Device(CARD, 80_000 * MIB, mib * MIB, (Process(7, 1, mib * MIB, 10, POD),))
    return Report(Sample(at_ns, (device,)), done, caps=caps, is_dry=dry)


def tenants(*reports: Report) -> TenantTable:
    made = TenantTable()
    made.hold(HELD, MEMORY)
    for one in reports:
        made.hear(one)
    return made


def enforced(*reports: Report, now_ns: int = 0) -> dict[str, str]:
    return {one.tenancy.pod_uid: one.enforced for one in tenants(*reports).tenants(now_ns)}


def test_caps_are_for_who_has_one() -> None:
    assert TenantTable().hold(HELD, MEMORY) == {(POD, CARD): 30_000}
    assert TenantTable(cap_all=True).hold(HELD, MEMORY) == {(POD, CARD): 30_000, (OTHER, CARD): 40_000}


def test_a_tenant_stays_capped_where_it_runs_and_is_told_of_kills_there() -> None:
    made = tenants()
    moved = [reservation({POD: entry(nano=250_000_000, cap_mib=30_000)}, "GPU-2")]
    assert made.hold(moved, MEMORY) == {(POD, CARD): 30_000, (POD, "GPU-2"): 30_000}
    assert [tenancy.device for tenancy, _ in made.hear(report(0, kill()))] == [CARD]
    # It holds a share of the other device alone.
    assert [one.tenancy.device for one in made.tenants(0)] == ["GPU-2"]


def test_without_an_enforcer_tenants_are_known_and_their_use_is_not() -> None:
    made = tenants()
    assert [(one.tenancy.pod_uid, one.memory_percent, one.enforced) for one in made.tenants(0)] == [
        (OTHER, None, ""),
        (POD, None, ""),
    ]
    assert not made.measures(0).tenants


def test_of_what_holds_a_cap_the_strongest_is_said_of_tenants_that_have_one() -> None:
    made = tenants()
    assert made.place({"hami-core": {(POD, CARD), (OTHER, CARD)}})
    assert {one.tenancy.pod_uid: one.enforced for one in made.tenants(0)} == {POD: "hami-core", OTHER: ""}
    assert [one.enforced for one in made.shares(POD, 0)] == ["hami-core"]
    assert not made.place({"hami-core": {(OTHER, CARD), (POD, CARD)}})
    made.hear(report())
    assert [one.enforced for one in made.shares(POD, 0)] == ["kill"]
    # A memory enforcer that is silent ends nobody, and the library is there still.
    assert [one.enforced for one in made.shares(POD, STALE_NS + 1)] == ["hami-core"]
    assert made.place({"hami-core": set()})
    assert [one.enforced for one in made.shares(POD, STALE_NS + 1)] == [""]


def test_with_one_their_use_is_of_their_share() -> None:
    other, mine = tenants(report()).tenants(0)
    assert other == TenantUse(other.tenancy, 0, 0, None, "")
    assert mine == TenantUse(mine.tenancy, 50, 40, None, "kill")
    assert len(tenants(report()).measures(0).tenants) == 2


def test_nobody_is_told_to_use_more_than_all_of_a_share() -> None:
    (_, mine) = tenants(report(mib=60_000)).tenants(0)
    assert mine.memory_percent == 100


@pytest.mark.parametrize(
    ("last", "now_ns"),
    [
        (report(caps=None), 0),
        (report(dry=True), 0),
        (report(), STALE_NS + 1),
        (Report(report().sample, unjudged=(CARD,), caps=1), 0),
        (Report(Sample(0, (), (CARD,)), caps=1), 0),
    ],
)
def test_a_cap_is_enforced_only_where_somebody_above_it_would_be_ended(last: Report, now_ns: int) -> None:
    assert enforced(report()) == {POD: "kill", OTHER: ""}
    assert enforced(last, now_ns=now_ns) == {POD: "", OTHER: ""}


def limited(*held: str, dry: bool = False) -> Report:
    return replace(report(dry=dry), driver=Limited(tuple((pod, CARD) for pod in held)))


@pytest.mark.parametrize(
    ("last", "now_ns", "word"),
    [
        (limited(POD), 0, "driver"),
        # Nobody is ended in a dry run, and the driver holds the cap.
        (limited(POD, dry=True), 0, "driver"),
        (limited(), 0, "kill"),
        (limited(OTHER), 0, "kill"),
        (limited(dry=True), 0, ""),
        (replace(report(), driver=Limited(((POD, "GPU-2"),))), 0, "kill"),
        (replace(report(), driver=Limited((), "the driver can't")), 0, "kill"),
        (limited(POD), STALE_NS + 1, ""),
    ],
)
def test_what_the_driver_was_read_back_to_hold_is_enforced_by_it(last: Report, now_ns: int, word: str) -> None:
    assert enforced(last, now_ns=now_ns) == {POD: word, OTHER: ""}
    assert [one.enforced for one in tenants(last).shares(POD, now_ns)] == [word]


def test_a_pod_is_shown_its_own_share_and_its_use_while_that_is_known() -> None:
    made = tenants()
    assert made.pods == {POD, OTHER}
    (mine,) = made.shares(POD, 0)
    assert (mine.tenancy.pod_uid, mine.measured, mine.enforced) == (POD, None, "")
    made.hear(report())
    (mine,) = made.shares(POD, 0)
    assert mine.measured is not None
    assert (mine.measured.used_bytes, mine.measured.processes, mine.enforced) == (10_000 * MIB, 1, "kill")
    (other,) = made.shares(OTHER, 0)
    assert other.measured is not None
    assert (other.measured.processes, other.enforced) == (0, "")
    # Of the newest report, of the shares of now, and of no old report.
    made.hear(report(1, mib=5_000))
    assert [one.measured.used_bytes for one in made.shares(POD, 1) if one.measured] == [5_000 * MIB]
    made.hold([], MEMORY)
    assert made.shares(POD, 1) == made.shares("gone", 1) == ()
    made.hold(HELD, MEMORY)
    assert [one.measured for one in made.shares(POD, STALE_NS + 2)] == [None]


def test_an_old_report_says_nothing_about_now() -> None:
    made = tenants(report())
    assert made.measures(STALE_NS).tenants
    assert not made.measures(STALE_NS + 1).tenants
    assert all(one.memory_percent is None for one in made.tenants(STALE_NS + 1))


def kill(pod: str = POD, *, dry: bool = False) -> Done:
    return Done(Kill(pod, CARD, 1, 1, Action.END_LARGEST, (), dry))


def test_a_pod_is_told_once_a_minute_and_every_kill_is_counted() -> None:
    made = tenants()
    told = [
        [tenancy.pod_uid for tenancy, _ in made.hear(report(second * SECOND, kill(), kill(OTHER, dry=True)))]
        for second in (0, 1, 59, 60)
    ]
    assert told == [[POD, OTHER], [], [], [POD, OTHER]]
    assert made.kills == {("largest", False): 4, ("largest", True): 4}
    # Somebody who holds nothing any more is nobody to be told.
    assert made.hear(report(200 * SECOND, kill("gone"))) == []


def test_for_how_long_a_tenant_is_idle_is_measured_from_its_last_use() -> None:
    made = tenants(*(report(second * SECOND) for second in range(0, 1_800, 30)))
    assert [one.idle_ns for one in made.measures(1_770 * SECOND).tenants] == [None, None]
    made.hear(report(1_800 * SECOND))
    measured = made.measures(1_800 * SECOND).tenants
    assert {one.tenancy.pod_uid: one.idle_ns for one in measured} == {POD: None, OTHER: 1_800 * SECOND}


@pytest.mark.parametrize(
    ("back_ends", "said"),
    [
        (set[str](), ""),
        ({"hami-core"}, "hami-core"),
        ({"hami-core", "kill"}, "kill"),
        ({"mps", "hami-core"}, "mps"),
        (set(STRENGTHS), "driver"),
        ({"nobody's"}, ""),
    ],
)
def test_of_several_back_ends_the_strongest_is_said(back_ends: set[str], said: str) -> None:
    assert strongest(back_ends) == said


def test_every_word_that_readers_know_is_ranked() -> None:
    assert [strongest({name}) for name in STRENGTHS] == list(STRENGTHS)


@pytest.mark.parametrize(
    ("word", "than", "is_so"),
    [("", "kill", True), ("kill", "driver", True), ("kill", "", False), ("kill", "kill", False), ("", "", False)],
)
def test_a_weaker_one_holds_less_well(word: str, than: str, *, is_so: bool) -> None:
    assert is_weaker(word, than) is is_so


QUARTER = Tenancy("pod-a", "team/p", "GPU-1", 250_000_000, 1000, 1500)


def device(*processes: Process, uuid: str = "GPU-1") -> Device:
    return Device(uuid, 4000 * MIB, 1800 * MIB, processes, 40)


def test_a_tenant_has_the_sums_of_its_processes_and_a_device_what_is_nobodys() -> None:
    mine = Process(1, 1, 900 * MIB, 10, "pod-a"), Process(2, 1, 100 * MIB, 20, "pod-a")
    others = Process(3, 1, 700 * MIB, 5, "pod-b"), Process(4, 1, 100 * MIB, 5)
    found = measures(Sample(0, (device(*mine, *others),)), [QUARTER])
    assert found == Measures(
        (DeviceMeasures("GPU-1", 4000 * MIB, 1800 * MIB, 40, 250_000_000, 800 * MIB),),
        (TenantMeasures(QUARTER, 2, 1000 * MIB, 30, 1500 * MIB),),
    )
    (tenant,) = found.tenants
    assert (tenant.asked_bytes, tenant.sm_of_share_percent) == (1000 * MIB, 120)


def test_what_the_driver_does_not_tell_is_not_known() -> None:
    untold = Process(1, 1, 5, 10, "pod-a"), Process(2, 1, None, None, "pod-a")
    (tenant,) = measures(Sample(0, (device(*untold),)), [QUARTER]).tenants
    assert (tenant.processes, tenant.used_bytes, tenant.sm_percent, tenant.sm_of_share_percent) == (2, None, None, None)


def test_a_tenant_without_processes_uses_nothing_and_one_on_a_device_that_was_not_read_is_left_out() -> None:
    uncapped = Tenancy("pod-b", "team/q", "GPU-1", 1, 0)
    lost = Tenancy("pod-a", "team/p", "GPU-9", 1)
    assert measures(Sample(0, (device(),)), [uncapped, lost]).tenants == (TenantMeasures(uncapped, 0, 0, 0, None),)


PROCESSES = st.lists(
    st.builds(
        Process,
        st.integers(1, 99),
        st.just(1),
        st.integers(0, 2**40),
        st.integers(0, 100),
        st.sampled_from(["", "pod-a", "pod-b"]),
    ),
    max_size=8,
)


@given(PROCESSES)
def test_nothing_is_lost_between_tenants_and_nobody(processes: list[Process]) -> None:
    found = measures(Sample(0, (device(*processes),)), [QUARTER])
    told = sum(tenant.used_bytes or 0 for tenant in found.tenants) + found.devices[0].unattributed_bytes
    assert told == sum(one.used_bytes or 0 for one in processes)


def test_kills_are_counted_by_what_was_done() -> None:
    largest, everybody = (
        Done(Kill("pod-a", "GPU-1", 5, 1, action, (), is_dry))
        for action, is_dry in ((Action.END_LARGEST, True), (Action.END_ALL, False))
    )
    once = counted({}, [largest, everybody, largest])
    assert once == {("largest", True): 2, ("all", False): 1}
    assert counted(once, [everybody]) == {("largest", True): 2, ("all", False): 2}
    assert counted(once, []) == once


MESSAGES_POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
MESSAGES_CARD = "GPU-5e2b1c00-0000-4000-8000-000000000001"


def body(frame: bytes) -> bytes:
    (message,) = Frames().cut(frame)
    return message


def test_caps_come_as_they_were_sent() -> None:
    caps = {(MESSAGES_POD, MESSAGES_CARD): 5120, (MESSAGES_POD, "MIG-x"): 1}
    assert read_caps(body(write_caps(caps))) == caps
    assert read_caps(body(write_caps({}))) == {}


def test_an_enforcer_ignores_what_only_a_newer_agent_says() -> None:
    assert read_caps(json.dumps({"caps": [[MESSAGES_POD, MESSAGES_CARD, 5]], "more": 1}).encode()) == {
        (MESSAGES_POD, MESSAGES_CARD): 5
    }


@pytest.mark.parametrize(
    "said",
    [
        [],
        {},
        {"caps": {}},
        {"kill": [1]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD]]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD, 0]]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD, -1]]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD, True]]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD, 1.5]]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD, 1 << 40]]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD, "5"]]},
        {"caps": [["", MESSAGES_CARD, 5]]},
        {"caps": [["../../1", MESSAGES_CARD, 5]]},
        {"caps": [[MESSAGES_POD.upper(), MESSAGES_CARD, 5]]},
        {"caps": [[MESSAGES_POD, "", 5]]},
        {"caps": [[MESSAGES_POD, "GPU-a\n", 5]]},
        {"caps": [[MESSAGES_POD, "GPU-" + "a" * 100, 5]]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD, 5], [MESSAGES_POD, MESSAGES_CARD, 6]]},
        {"caps": [[MESSAGES_POD, MESSAGES_CARD, 5]] * (MOST_CAPS + 1)},
    ],
)
def test_of_caps_that_are_not_all_well_formed_none_counts(said: Any) -> None:
    with pytest.raises(MalformedMessage, match="allowed"):
        read_caps(json.dumps(said).encode())


@pytest.mark.parametrize("message", [b"", b"{", b"\xff", b"[" * 100_000, b'{"caps":[' + b"9" * 10_000 + b"]}", b"null"])
def test_what_is_no_json_is_refused(message: bytes) -> None:
    with pytest.raises(MalformedMessage, match="allowed"):
        read_caps(message)
    with pytest.raises(MalformedMessage):
        read_report(message)


WHOLE = st.integers(0, 2**64 - 1)
PERCENT = st.none() | st.integers(0, 100)
WORD = st.text(max_size=64)
MESSAGES_PROCESSES = st.lists(
    st.builds(Process, WHOLE, WHOLE, st.none() | WHOLE, PERCENT, WORD, WORD, WORD, WHOLE), max_size=4
).map(lambda found: tuple(sorted(found, key=lambda one: -(one.used_bytes or 0))))
SAMPLES = st.builds(
    Sample,
    WHOLE,
    st.lists(st.builds(Device, WORD, WHOLE, WHOLE, MESSAGES_PROCESSES, PERCENT), max_size=3).map(tuple),
    st.lists(WORD, max_size=2).map(tuple),
)
KILLS = st.builds(Kill, WORD, WORD, WHOLE, WHOLE, st.sampled_from(Action), MESSAGES_PROCESSES, st.booleans())
DONE = st.lists(st.builds(Done, KILLS, st.lists(WORD, max_size=4).map(tuple), WHOLE), max_size=3).map(tuple)


@given(st.builds(Report, SAMPLES, DONE, st.lists(WORD, max_size=2).map(tuple), st.none() | WHOLE, WHOLE, st.booleans()))
def test_a_report_comes_as_it_was_sent(report: Report) -> None:
    assert read_report(body(write_report(report))) == report


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
    )
)
def test_no_json_makes_a_reader_fail_otherwise(said: Any) -> None:
    for read in (read_caps, read_report):
        for message in (said, {"caps": said}, {"caps": [said]}):
            with contextlib.suppress(MalformedMessage):
                read(json.dumps(message).encode())


@given(st.binary(max_size=60))
def test_no_bytes_make_a_reader_fail_otherwise(message: bytes) -> None:
    for read in (read_caps, read_report):
        with pytest.raises(MalformedMessage):
            read(message)


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.integers(1, 7), min_size=1))
def test_messages_are_cut_the_same_however_they_come(messages: list[bytes], steps: list[int]) -> None:
    stream = b"".join(len(one).to_bytes(4, "big") + one for one in messages)
    found: list[bytes] = []
    frames, at, number = Frames(), 0, 0
    while at < len(stream):
        step = steps[number % len(steps)]
        found += frames.cut(stream[at : at + step])
        at, number = at + step, number + 1
    assert found == messages


def test_a_length_beyond_the_bound_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(MalformedMessage, match=f"at most {MOST_BYTES} are allowed"):
        list(Frames().cut((MOST_BYTES + 1).to_bytes(4, "big")))


def test_a_frame_is_its_length_and_its_json() -> None:
    assert framed({"caps": []}) == b'\x00\x00\x00\x0b{"caps":[]}'


@pytest.mark.parametrize(
    "limited",
    [
        None,
        Limited(),
        Limited(((MESSAGES_POD, MESSAGES_CARD), (MESSAGES_POD, "GPU-b"))),
        Limited((), "the driver can't"),
    ],
)
def test_limits_by_the_driver_come_as_they_were_sent(limited: Limited | None) -> None:
    report = Report(Sample(5), driver=limited)
    assert read_report(body(write_report(report))) == report


def test_an_enforcer_of_before_has_no_limits_by_the_driver() -> None:
    said = json.loads(body(write_report(Report(Sample(5), caps=1))))
    del said["driver"]
    assert read_report(json.dumps(said).encode()) == Report(Sample(5), caps=1)


@pytest.mark.parametrize(
    "said", [1, [], [[]], [[], 1], [[[MESSAGES_POD]], ""], [[[MESSAGES_POD, 1]], ""], [[], "x" * 101], {"held": []}]
)
def test_limits_of_another_form_are_refused(said: Any) -> None:
    report = json.loads(body(write_report(Report(Sample(5)))))
    with pytest.raises(MalformedMessage):
        read_report(json.dumps({**report, "driver": said}).encode())


def test_a_report_names_so_many_limits_and_so_long_a_reason() -> None:
    held = tuple((MESSAGES_POD, f"GPU-{number}") for number in range(MOST_HELD + 1))
    found = read_report(body(write_report(Report(Sample(5), driver=Limited(held, "w" * 200)))))
    assert found.driver == Limited(held[:MOST_HELD], "w" * 100)
