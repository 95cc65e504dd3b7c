"""What a GpuNode says of slices is read as it was written."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.book import Entry
from gpu.mig import Profile
from gpu.reservation import Reservation
from nodeagent.core.enforcement.messages import Report, read_report, write_report
from nodeagent.core.enforcement.overuse import MIB, Device, Process, Sample
from nodeagent.core.enforcement.tenants import TenantTable
from nodeagent.core.mig_partitioning import (
    CardReport,
    CardSlices,
    Outcome,
    Present,
    Restored,
    State,
    ask_of,
    decoded,
    encoded,
    lost,
    outcome_of,
    report,
    reported,
)
from nodeagent.core.report.status import tenants
from tests.nodeagent.core.enforcement.test_caps import reservation
from tests.nodeagent.core.mig.cards import PROFILES, ask, present, seen, spot
from wire.crds.gpunode import (
    CardStatus,
    GpuNode,
    GpuNodeSpec,
    GpuNodeStatus,
    MigLayout,
    PartitioningStatus,
    SlicePlace,
    SliceStatus,
)


def test_a_look_is_reported_with_users_and_profiles() -> None:
    look = seen("2g@2", present("1g@0", uuids=[]), present("3g@4", is_whole=False), given=["MIG-2g@2"])
    found = report(look, Outcome("a", State.DONE))
    assert [(each.profile, each.start, each.size, each.uuid, each.in_use) for each in found.layout or ()] == [
        ("1g.10gb", 0, 1, "", False),
        ("2g.20gb", 2, 2, "MIG-2g@2", True),
        ("3g.40gb", 4, 4, "", True),
    ]
    assert [(each.name, each.size, each.most) for each in found.profiles] == [
        (name, profile.places[0].size, profile.most) for name, profile in sorted(PROFILES.items())
    ]
    assert found.profiles[1].starts == [0, 2, 4]
    assert found.partitioning == PartitioningStatus(attempt="a", state="done")


def test_a_profile_that_has_no_place_is_of_no_size() -> None:
    look = replace(seen(), profiles={"1g.10gb": Profile((), 0)})
    assert [(each.size, each.starts) for each in report(look, None).profiles] == [(0, [])]


def test_a_layout_that_is_asked_for_is_read() -> None:
    wanted = MigLayout(uuid="GPU-a", layout=[SlicePlace(profile="1g.10gb", start=0)], attempt="a")
    assert ask_of(wanted) == ask("1g@0")


def test_outcomes_are_read_as_they_were_written() -> None:
    for state in State:
        told = CardReport().with_outcome(Outcome("a", state, "why")).partitioning
        assert told is not None
        assert outcome_of(told) == Outcome("a", state, "why")
    assert outcome_of(PartitioningStatus(attempt="a", state="of a later version")).state is State.UNDER_WAY


def test_a_report_is_read_back_from_a_status() -> None:
    found = report(seen("2g@2"), Outcome("a", State.FAILED, "words"))
    layout = None if found.layout is None else list(found.layout)
    status = CardStatus(uuid="GPU-a", profiles=list(found.profiles), layout=layout, partitioning=found.partitioning)
    assert reported(status) == found
    assert reported(CardStatus(uuid="GPU-a")) == CardReport()
    assert found.with_outcome(None) == found


# What a GPU gets again after a reboot, as a table of what was asked, what was reported and what is there.

GPU = "GPU-a"


def asked(layout: Sequence[str], *, attempt: str = "a") -> GpuNodeSpec:
    places = [SlicePlace(profile=spot(each).profile, start=spot(each).start) for each in layout]
    return GpuNodeSpec(mig=[MigLayout(uuid=GPU, layout=places, attempt=attempt)])


def told(state: str, shown: Sequence[str] | None, *, attempt: str = "a") -> GpuNodeStatus:
    partitioning = PartitioningStatus(attempt=attempt, state=state) if state else None
    layout = None if shown is None else [
        SliceStatus(profile=spot(each).profile, start=spot(each).start, uuid=f"MIG-{each}") for each in shown
    ]  # fmt: skip
    return GpuNodeStatus(cards=[CardStatus(uuid=GPU, layout=layout, partitioning=partitioning)])


def missing(spec: GpuNodeSpec, status: GpuNodeStatus, *there: str | Present) -> list[str]:
    card = CardSlices(tuple(present(each) if isinstance(each, str) else each for each in there), PROFILES)
    return [f"{each.profile[:2]}@{each.start}" for each in lost(GpuNode(spec=spec, status=status), GPU, card)]


BOTH = ("2g@0", "3g@4")
DONE = told("done", BOTH)


@pytest.mark.parametrize(
    ("spec", "status", "there", "again"),
    [
        pytest.param(asked(BOTH), DONE, (), ["2g@0", "3g@4"], id="all are gone"),
        pytest.param(asked(BOTH), told("done", ()), (), ["2g@0", "3g@4"], id="the status shows the empty GPU already"),
        pytest.param(asked(BOTH), DONE, ("2g@0",), ["3g@4"], id="an agent ended after the first"),
        pytest.param(asked(BOTH), DONE, (present("2g@0", uuids=()),), ["2g@0", "3g@4"], id="and within the first"),
        pytest.param(asked(BOTH), DONE, BOTH, [], id="nothing is gone"),
        pytest.param(asked(BOTH), DONE, ("1g@0",), [], id="somebody else has cut it"),
        pytest.param(asked(BOTH), DONE, (present("2g@0", is_whole=False),), [], id="or cut a slice further"),
        pytest.param(asked(()), told("done", ()), (), [], id="none were wanted"),
        pytest.param(GpuNodeSpec(), DONE, (), [], id="nobody has asked for any"),
        pytest.param(asked(BOTH), GpuNodeStatus(), (), [], id="nothing was ever reported: the steps make it"),
        pytest.param(asked(BOTH), told("underway", ("1g@0",)), (), [], id="under way: the steps go on"),
        pytest.param(asked(BOTH, attempt="b"), DONE, (), [], id="asked again since: the steps make it"),
        pytest.param(asked(BOTH), told("refused", ("1g@0", "1g@1")), (), ["1g@0", "1g@1"], id="refused: the old ones"),
        pytest.param(asked(BOTH), told("failed", ("1g@1",)), (), ["1g@1"], id="failed: those that were left"),
        pytest.param(asked(BOTH), told("failed", None), (), [], id="failed, and nothing was known"),
        pytest.param(
            asked(("2g@0", "1g@0"), attempt="b"), told("done", ("1g@0",)), (), ["1g@0"], id="asked for what can't be"
        ),
        pytest.param(asked(("2g@0", "1g@0")), told("done", ()), (), [], id="a layout that can't be is not begun"),
    ],
)  # fmt: skip
def test_a_reboot_is_made_good(
    spec: GpuNodeSpec, status: GpuNodeStatus, there: tuple[str | Present, ...], again: list[str]
) -> None:
    assert missing(spec, status, *there) == again


def test_a_slice_that_no_layout_can_name_is_not_made_again() -> None:
    odd = SliceStatus(profile="1g.10gb", start=1, uuid="")
    status = GpuNodeStatus(
        cards=[CardStatus(uuid=GPU, layout=[odd], partitioning=PartitioningStatus(attempt="a", state="failed"))]
    )
    assert missing(asked(BOTH), status) == []


@given(st.lists(st.sampled_from(["1g@0", "1g@1", "2g@2", "3g@4"]), unique=True), st.integers(0, 4))
def test_a_crash_after_any_of_them_leaves_the_rest_to_be_made(layout: list[str], made: int) -> None:
    first = missing(asked(layout), told("done", ()))
    rest = missing(asked(layout), told("done", ()), *first[:made])
    assert first[:made] + rest == first
    assert sorted(first) == sorted(layout)


def test_what_was_looked_at_counts_for_one_boot_and_garbage_for_nothing() -> None:
    kept = Restored().at("b1").after("GPU-a").after("GPU-b")
    assert decoded(encoded(kept)) == kept
    assert kept.at("b1").cards == {"GPU-a", "GPU-b"}
    assert kept.at("b2") == Restored("b2")
    for content in (b"", b"[" * 10_000, b'{"boot": 1}', b"\xff"):
        assert decoded(content) == Restored()


# What the agent's part of a memory enforcer's report costs, on a node of 8 GPUs with 64 tenants: CPU time.

CARDS = [f"GPU-{number}" for number in range(8)]
PODS = {str(uuid.UUID(int=number)): CARDS[number % 8] for number in range(64)}
LOOKS = 600
SECOND = 10**9
#: With the memory enforcer's 1.5 ms a look each second: half a percent of a core.
MOST_MS = 3.5


def books() -> list[Reservation]:
    entry = Entry(125_000_000, "a", "1", 0, "team/p", cap_mib=10_000)
    return [reservation({pod: entry for pod, card in PODS.items() if card == each}, each, uid=each) for each in CARDS]


def sample(at_ns: int) -> Sample:
    def processes(card: str) -> tuple[Process, ...]:
        return tuple(
            Process(number, 1, (number * 100 + at_ns // SECOND % 97) * MIB, 5, pod, "c" * 64, "python3")
            for number, (pod, at) in enumerate(PODS.items())
            if at == card
        )

    return Sample(at_ns, tuple(Device(card, 80_000 * MIB, 40_000 * MIB, processes(card), 40) for card in CARDS))


@pytest.mark.thorough
def test_a_report_each_second_costs_the_agent_less_than_the_rest_of_half_a_percent() -> None:
    table = TenantTable()
    memory_mib = dict.fromkeys(CARDS, 80_000)
    reports = [write_report(Report(sample(number * SECOND), caps=64))[4:] for number in range(LOOKS)]
    began_s = time.process_time()
    for number, written in enumerate(reports):
        table.hear(read_report(written))
        # As nodeagent/enforcement/memory.py looks at books and tells, where nothing but the use changes.
        if number % 10 == 0:
            table.hold(books(), memory_mib)
            assert len(tenants(table.tenants(number * SECOND), {})) == len(PODS)
    report_ms = (time.process_time() - began_s) / LOOKS * 1e3
    print(f"{report_ms:.2f} ms of CPU a report")
    assert report_ms <= MOST_MS
