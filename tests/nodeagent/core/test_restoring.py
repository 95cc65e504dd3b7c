"""What a GPU gets again after a reboot, as a table of what was asked, what was reported and what is there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.mig_partitioning import CardSlices, Present, Restored, decoded, encoded, lost
from tests.nodeagent.core.mig.cards import PROFILES, present, spot
from wire.crds.gpunode import (
    CardStatus,
    CarvingStatus,
    GpuNode,
    GpuNodeSpec,
    GpuNodeStatus,
    MigLayout,
    SlicePlace,
    SliceStatus,
)

GPU = "GPU-a"


def asked(layout: Sequence[str], *, attempt: str = "a") -> GpuNodeSpec:
    places = [SlicePlace(profile=spot(each).profile, start=spot(each).start) for each in layout]
    return GpuNodeSpec(mig=[MigLayout(uuid=GPU, layout=places, attempt=attempt)])


def told(state: str, shown: Sequence[str] | None, *, attempt: str = "a") -> GpuNodeStatus:
    carving = CarvingStatus(attempt=attempt, state=state) if state else None
    layout = None if shown is None else [
        SliceStatus(profile=spot(each).profile, start=spot(each).start, uuid=f"MIG-{each}") for each in shown
    ]  # fmt: skip
    return GpuNodeStatus(cards=[CardStatus(uuid=GPU, layout=layout, carving=carving)])


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
        cards=[CardStatus(uuid=GPU, layout=[odd], carving=CarvingStatus(attempt="a", state="failed"))]
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
