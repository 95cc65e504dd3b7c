"""Keys that look like a request and have no effect."""

from __future__ import annotations

import pytest

from gpu import messages
from gpu.attempts import Cause, blames_node, is_silence, taught_device
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    WholeAsk,
)
from gpu.translation import Cards, Note, NoteCode, ResourceEdit, Translation, Wishes

MAIN = ContainerRef(ContainerKind.REGULAR, 0, "main")
LOAD = ContainerRef(ContainerKind.INIT, 0, "load")
HALF = FractionAsk(500_000_000)


@pytest.mark.parametrize(
    ("asks", "wishes", "lacking", "text"),
    [
        ((MemoryAsk(5120),), Wishes(memory_cap=True), ("memory-cap",), "a memory cap of 5120 MiB"),
        ((MemoryAsk(5, limit_mib=8),), Wishes(memory_cap=True), ("memory-cap",), "a memory cap of 8 MiB"),
        ((HALF, MemoryAsk(5), HALF), Wishes(memory_cap=True), ("memory-cap",), "a memory cap of 50% and 5 MiB"),
        ((WholeAsk(),), Wishes(memory_cap=True), ("memory-cap",), "a memory cap"),
        (
            (MemoryAsk(5120, compute_percent=30),),
            Wishes(memory_cap=True, compute_cap=True, mode="mps"),
            ("compute-cap", "memory-cap", "mps"),
            "a memory cap of 5120 MiB, a compute cap of 30%, mode mps",
        ),
        (
            (MemoryAsk(5120, compute_percent=30),),
            Wishes(memory_cap=True, compute_cap=True, mode="mps"),
            ("compute-cap",),
            "a compute cap of 30%",
        ),
    ],
)
def test_what_is_not_enforced_is_told_with_its_amount(
    asks: tuple[Ask, ...], wishes: Wishes, lacking: tuple[str, ...], text: str
) -> None:
    request = GpuRequest((ContainerRequest(MAIN, asks),))
    assert messages.unenforced_text(request, wishes, lacking) == text


@pytest.mark.parametrize(
    ("where", "asks", "line"),
    [
        (MAIN, (HALF,), "main: 50% of a GPU"),
        (MAIN, (FractionAsk(62_500_000), FractionAsk(62_500_000)), "main: 2 times 6.25% of a GPU"),
        (MAIN, (FractionAsk(1),), "main: 0.0000001% of a GPU"),
        (MAIN, (FractionAsk(500_000_000, limit_nano=750_000_000),), "main: 50% of a GPU (up to 75%)"),
        (MAIN, (MemoryAsk(5, limit_mib=8),), "main: 5 MiB of a GPU (up to 8 MiB)"),
        (
            MAIN,
            (MemoryAsk(5, seat="a", index=3, compute_percent=30),),
            "main: 5 MiB of a GPU, 30% of its compute, index 3, on device a",
        ),
        (LOAD, (WholeAsk(), WholeAsk(), HALF), "init container load: 2 times a whole GPU + 50% of a GPU"),
        (
            MAIN,
            (MigAsk("1g.5gb"), FractionAsk(500_000_000, profile="1g.5gb")),
            "main: MIG slice 1g.5gb + 50% of MIG slice 1g.5gb",
        ),
    ],
)
def test_asks_are_told_exactly(where: ContainerRef, asks: tuple[Ask, ...], line: str) -> None:
    assert messages.request_lines(GpuRequest((ContainerRequest(where, asks),))) == [line]


def test_a_pod_without_gpus_says_so() -> None:
    assert messages.request_lines(GpuRequest()) == ["no GPU"]


def test_wishes_and_cards_are_all_told() -> None:
    translation = Translation(
        dialect="hami",
        request=GpuRequest(),
        strategy="spread",
        cards=Cards(products=("a100", "h100"), not_products=("t4",), uuids=("GPU-a",), not_uuids=("GPU-b",)),
        wishes=Wishes(memory_cap=True, compute_cap=True, mode="mps"),
    )
    assert list(messages.wish_lines(translation)) == [
        "no more memory than that",
        "no more compute than that",
        "mode mps",
        "spread",
        "GPUs of type a100, h100",
        "no GPUs of type t4",
        "GPUs GPU-a",
        "not the GPUs GPU-b",
    ]


@pytest.mark.parametrize("code", NoteCode)
def test_every_note_has_words_that_name_field_and_value(code: NoteCode) -> None:
    text = messages.note_text(Note(code, "gpu-count of container main", "4", "1"))
    assert text.startswith("gpu-count of container main is '4', read as 1: ")
    assert len(text) > len("gpu-count of container main is '4', read as 1: ")


def test_edits_say_what_becomes_of_a_resource() -> None:
    assert messages.edit_text(ResourceEdit(MAIN, "nvidia.com/gpu", None)) == "main: nvidia.com/gpu is taken out"
    assert (
        messages.edit_text(ResourceEdit(LOAD, "nvidia.com/gpu", 2)) == "init container load: nvidia.com/gpu is set to 2"
    )


# What the text of a fence says about the node on which an attempt failed.

LEARNED = {Cause.CARD_TOO_SMALL, Cause.OTHER_DEVICE}
NODES = {Cause.RESERVATION_LOST, Cause.DEVICE_CLAIMED, Cause.REFUSED, Cause.NOT_JOINABLE, Cause.NOT_ENFORCED}
SILENT = {Cause.RESERVATION_SILENT, Cause.RESERVATION_FAILED}


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("detail", ["", ": group g", ": CardTooSmall: ReservationSilent"])
def test_the_cause_is_the_first_word_of_a_text(cause: Cause, detail: str) -> None:
    because = f"{cause.value}{detail}"
    assert taught_device(because) is (cause in LEARNED)
    assert is_silence(because) is (cause in SILENT)
    # Of the node's own are those by which kubelet or a device there was in the way.
    assert blames_node(because) is (cause in SILENT | NODES)


@pytest.mark.parametrize("because", ["", "group g: CardTooSmall", "an older version's word"])
def test_what_is_not_known_blames_the_node(because: str) -> None:
    assert (taught_device(because), is_silence(because), blames_node(because)) == (False, False, True)
