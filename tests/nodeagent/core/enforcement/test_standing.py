from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.enforcement.messages import Done, Limited, Report
from nodeagent.core.enforcement.overuse import MIB, Action, Deed, Device, Process, Sample
from nodeagent.core.enforcement.tenants import STALE_NS, Standing, TenantUse
from tests.nodeagent.core.enforcement.test_caps import CARD, MEMORY, OTHER, POD, entry, reservation

SECOND = 10**9
HELD = [reservation({POD: entry(nano=250_000_000, cap_mib=30_000), OTHER: entry(nano=500_000_000)})]


def report(at_ns: int = 0, *done: Done, mib: int = 10_000, caps: int | None = 1, dry: bool = False) -> Report:
    device = Device(CARD, 80_000 * MIB, mib * MIB, (Process(7, 1, mib * MIB, 10, POD),))
    return Report(Sample(at_ns, (device,)), done, caps=caps, is_dry=dry)


def standing(*reports: Report) -> Standing:
    made = Standing()
    made.hold(HELD, MEMORY)
    for one in reports:
        made.hear(one)
    return made


def enforced(*reports: Report, now_ns: int = 0) -> dict[str, str]:
    return {one.tenancy.pod_uid: one.enforced for one in standing(*reports).tenants(now_ns)}


def test_caps_are_for_who_has_one() -> None:
    assert Standing().hold(HELD, MEMORY) == {(POD, CARD): 30_000}
    assert Standing(cap_all=True).hold(HELD, MEMORY) == {(POD, CARD): 30_000, (OTHER, CARD): 40_000}


def test_a_tenant_stays_capped_where_it_runs_and_is_told_of_deeds_there() -> None:
    made = standing()
    moved = [reservation({POD: entry(nano=250_000_000, cap_mib=30_000)}, "GPU-2")]
    assert made.hold(moved, MEMORY) == {(POD, CARD): 30_000, (POD, "GPU-2"): 30_000}
    assert [tenancy.device for tenancy, _ in made.hear(report(0, deed()))] == [CARD]
    # It holds a share of the other device alone.
    assert [one.tenancy.device for one in made.tenants(0)] == ["GPU-2"]


def test_without_a_warden_tenants_are_known_and_their_use_is_not() -> None:
    made = standing()
    assert [(one.tenancy.pod_uid, one.memory_percent, one.enforced) for one in made.tenants(0)] == [
        (OTHER, None, ""),
        (POD, None, ""),
    ]
    assert not made.measures(0).tenants


def test_of_what_holds_a_cap_the_strongest_is_said_of_tenants_that_have_one() -> None:
    made = standing()
    assert made.place({"hami-core": {(POD, CARD), (OTHER, CARD)}})
    assert {one.tenancy.pod_uid: one.enforced for one in made.tenants(0)} == {POD: "hami-core", OTHER: ""}
    assert [one.enforced for one in made.shares(POD, 0)] == ["hami-core"]
    assert not made.place({"hami-core": {(OTHER, CARD), (POD, CARD)}})
    made.hear(report())
    assert [one.enforced for one in made.shares(POD, 0)] == ["kill"]
    # A warden that is silent ends nobody, and the library is there still.
    assert [one.enforced for one in made.shares(POD, STALE_NS + 1)] == ["hami-core"]
    assert made.place({"hami-core": set()})
    assert [one.enforced for one in made.shares(POD, STALE_NS + 1)] == [""]


def test_with_one_their_use_is_of_their_share() -> None:
    other, mine = standing(report()).tenants(0)
    assert other == TenantUse(other.tenancy, 0, 0, None, "")
    assert mine == TenantUse(mine.tenancy, 50, 40, None, "kill")
    assert len(standing(report()).measures(0).tenants) == 2


def test_nobody_is_told_to_use_more_than_all_of_a_share() -> None:
    (_, mine) = standing(report(mib=60_000)).tenants(0)
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
    assert [one.enforced for one in standing(last).shares(POD, now_ns)] == [word]


def test_a_pod_is_shown_its_own_share_and_its_use_while_that_is_known() -> None:
    made = standing()
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
    made = standing(report())
    assert made.measures(STALE_NS).tenants
    assert not made.measures(STALE_NS + 1).tenants
    assert all(one.memory_percent is None for one in made.tenants(STALE_NS + 1))


def deed(pod: str = POD, *, dry: bool = False) -> Done:
    return Done(Deed(pod, CARD, 1, 1, Action.END_LARGEST, (), dry))


def test_a_pod_is_told_once_a_minute_and_every_deed_is_counted() -> None:
    made = standing()
    told = [
        [tenancy.pod_uid for tenancy, _ in made.hear(report(second * SECOND, deed(), deed(OTHER, dry=True)))]
        for second in (0, 1, 59, 60)
    ]
    assert told == [[POD, OTHER], [], [], [POD, OTHER]]
    assert made.deeds == {("largest", False): 4, ("largest", True): 4}
    # Somebody who holds nothing any more is nobody to be told.
    assert made.hear(report(200 * SECOND, deed("gone"))) == []


def test_for_how_long_a_tenant_is_idle_is_measured_from_its_last_use() -> None:
    made = standing(*(report(second * SECOND) for second in range(0, 1_800, 30)))
    assert [one.idle_ns for one in made.measures(1_770 * SECOND).tenants] == [None, None]
    made.hear(report(1_800 * SECOND))
    measured = made.measures(1_800 * SECOND).tenants
    assert {one.tenancy.pod_uid: one.idle_ns for one in measured} == {POD: None, OTHER: 1_800 * SECOND}
