from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.dialects import clearml
from gpu.dialects.settings import ClearmlSettings, DialectSettings
from gpu.request import FractionAsk, GpuRequest, MemoryAsk, MigAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import EnvEdit, Mistake, Note, NoteCode, Refusal, ResourceEdit, Translation, Wishes, Written
from tests.fuzzing import fuzzed
from tests.gpu.dialects.pods import C0, C1, I0, asking, container, pod, understood
from tests.gpu.dialects.rows import Row, asks, edited, holds, note, parametrized, without
from tests.values import of_kind
from wire.core import Pod

EIGHTH = NANO_PER_DEVICE // 8
CAP = Wishes(memory_cap=True)
COUNT = "nvidia.com/gpu of container main"
LABEL = "label clearml-injector/fraction"


def settings(**chosen: Any) -> DialectSettings:
    return DialectSettings(clearml=ClearmlSettings(**chosen))


def labelled(text: str, *limits: dict[str, Any], **more: Any) -> Pod:
    return asking(*(limits or ({},)), labels={"clearml-injector/fraction": text}, **more)


def made(request: GpuRequest, **more: Any) -> Translation:
    if request.is_shared:
        more = {"strategy": "binpack", "wishes": CAP, **more}
    return Translation(dialect="clearml", request=request, **more)


def share(nano: int, **more: Any) -> Translation:
    return made(asks((C0, [FractionAsk(nano)])), **more)


def whole(count: int, *, have: int = 0, **more: Any) -> Translation:
    edits = () if have == count else (ResourceEdit(C0, "nvidia.com/gpu", count),)
    return made(asks((C0, [WholeAsk()] * count)), edits=edits, **more)


def reported(text: str, key: str = "c0") -> Written:
    return Written(env={key: {"CLEARML_AGENT_GPU_FRACTIONS": text}})


def dropped(count: int, by: str, *, usual: int = 0) -> tuple[Note, ...]:
    told = note(NoteCode.COUNT_DROPPED, COUNT, str(count), by)
    return (*told, Note(NoteCode.COUNT_DIFFERS, COUNT, str(count), str(usual))) if usual else told


GONE = (ResourceEdit(C0, "nvidia.com/gpu", None),)
SLICE = "nvidia.com/mig-1g.10gb"
IMAGE = "registry.example/clearml/fractional-gpu:u22-cu12.3-8gb"
BY_IMAGE = settings(by_image_tag=True)
REFUSED = (Mistake.MALFORMED, LABEL)
ROUNDED = (NoteCode.ROUNDED_UP, "clearml-injector/fraction")

LISTED = [
    *(
        Row(f"C1 {text}", labelled(text), share(eighths * EIGHTH), written=reported(told))
        for text, eighths, told in [
            ("0.125", 1, "0.125"),
            ("0.250", 2, "0.250"),
            ("0.25", 2, "0.250"),
            ("0.375", 3, "0.375"),
            ("0.500", 4, "0.500"),
            ("0.5", 4, "0.500"),
            ("0.50000000000000", 4, "0.500"),
            ("00.5", 4, "0.500"),
            ("0.625", 5, "0.625"),
            ("0.750", 6, "0.750"),
            ("0.875", 7, "0.875"),
        ]
    ),
    Row(
        "C1 the container that holds a GPU limit",
        labelled("0.5", {"cpu": 1}, {"nvidia.com/gpu": 4}),
        made(
            asks((C1, [FractionAsk(4 * EIGHTH)])),
            notes=note(NoteCode.COUNT_DROPPED, "nvidia.com/gpu of container side", "4", "0.5"),
            edits=(ResourceEdit(C1, "nvidia.com/gpu", None),),
        ),
        written=reported("0.500", "c1"),
    ),
    Row(
        "C1 beside a MIG slice",
        labelled("0.5", {SLICE: 1}),
        made(asks((C0, [FractionAsk(4 * EIGHTH), MigAsk("1g.10gb")]))),
        written=reported("0.500"),
    ),
    Row("C2 a true sixteenth", labelled("0.0625"), share(62_500_000), written=reported("0.0625")),
    Row(
        "C2 charged as an eighth",
        labelled("0.0625"),
        share(EIGHTH, notes=note(*ROUNDED, "0.0625", "0.125")),
        settings(sixteenth_as_eighth=True),
        reported("0.125"),
    ),
    *(Row(f"C3 {text}", labelled(text), whole(1), written=reported("1.000")) for text in ("1", "1.0", "1.000")),
    *(Row(f"C4 {text}", labelled(text), whole(2), written=reported("1.000")) for text in ("2", "2.0")),
    Row(
        "C4 beside the same count", labelled("2", {"nvidia.com/gpu": "2"}), whole(2, have=2), written=reported("1.000")
    ),
    Row("C4 as many as a container can be given", labelled("256"), whole(256), written=reported("1.000")),
    Row("C4 too many", labelled("257"), (Mistake.TOO_MANY, LABEL)),
    *(Row(f"C5 {text}", labelled(text), REFUSED) for text in ("1.5", "1.25")),
    *(Row(f"C6 {text}", labelled(text), REFUSED) for text in ("0.3", "0.1", "0.4999999999999999999", "0.06")),
    *(
        Row(
            f"C6 {text} rounded up",
            labelled(text),
            share(eighths * EIGHTH, notes=note(*ROUNDED, text, told)),
            settings(round_up=True),
            reported(told),
        )
        for text, eighths, told in [("0.3", 3, "0.375"), ("0.1", 1, "0.125"), ("0.8", 7, "0.875")]
    ),
    Row(
        "C6 0.9 rounded up",
        labelled("0.9"),
        whole(1, notes=note(*ROUNDED, "0.9", "1.000")),
        settings(round_up=True),
        reported("1.000"),
    ),
    *(
        Row(f"C7 {text!r}", labelled(text), REFUSED, settings(round_up=True))
        for text in ("0", "0.000", "-1", "abc", "", "NaN", "Inf", "1e-1", "500m", ".5", "+0.5", "0x1", "٠.٥", "9" * 64)  # noqa: RUF001 - digits of another script are a case
    ),
    Row(
        "C8 half a card, never four cards",
        labelled("0.500", {"nvidia.com/gpu": "4"}),
        share(4 * EIGHTH, notes=dropped(4, "0.500"), edits=GONE),
        written=reported("0.500"),
    ),
    Row(
        "C8 a sixteenth is one of eight slices",
        labelled("0.0625", {"nvidia.com/gpu": 1}),
        share(62_500_000, notes=dropped(1, "0.0625"), edits=GONE),
        written=reported("0.0625"),
    ),
    Row(
        "C8 another count is told",
        labelled("0.5", {"nvidia.com/gpu": 2}),
        share(4 * EIGHTH, notes=dropped(2, "0.5", usual=4), edits=GONE),
        written=reported("0.500"),
    ),
    Row(
        "C8 eight slices beside a whole card",
        labelled("1.000", {"nvidia.com/gpu": 8}),
        whole(1, have=8, notes=dropped(8, "1.000")),
        written=reported("1.000"),
    ),
    Row("C8 a count of none", labelled("0.5", {"nvidia.com/gpu": 0}), share(4 * EIGHTH), written=reported("0.500")),
    Row(
        "C8 a count in a second container",
        labelled("0.5", {"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 4}),
        (Mistake.CONFLICTING, "nvidia.com/gpu of container side"),
    ),
    Row("C8 a malformed count", labelled("0.5", {"nvidia.com/gpu": "x"}), (Mistake.MALFORMED, COUNT)),
    Row(
        "C9 eight slices make a card",
        asking({"nvidia.com/gpu": 8}),
        whole(1, have=8),
        settings(legacy_replicas=8),
        reported("1.000"),
    ),
    Row(
        "C9 a card by itself where a part is a whole one",
        asking({"nvidia.com/gpu": 1}),
        whole(1, have=1),
        settings(legacy_replicas=1),
        reported("1.000"),
    ),
    Row(
        "C9 slices of MIG stay what they are",
        asking({"nvidia.com/gpu": 8}, {SLICE: 2}),
        made(asks((C0, [WholeAsk()]), (C1, [MigAsk("1g.10gb")] * 2)), edits=(ResourceEdit(C0, "nvidia.com/gpu", 1),)),
        settings(legacy_replicas=8),
        reported("1.000"),
    ),
    Row(
        "C9 more than a container can be given",
        asking({"nvidia.com/gpu": 10**15}),
        (Mistake.TOO_MANY, COUNT),
        settings(legacy_replicas=8),
    ),
    Row("C9 not a multiple", asking({"nvidia.com/gpu": 4}), (Mistake.MALFORMED, COUNT), settings(legacy_replicas=8)),
    Row(
        "C10 the first generation",
        labelled("0.5", {"nvidia.com/gpu": 1, "clear.ml/fraction-1": "0.5"}),
        share(4 * EIGHTH, notes=dropped(1, "0.5"), edits=GONE),
        written=reported("0.500"),
    ),
    Row(
        "C10 without its label",
        asking({"clear.ml/fraction": "0.5"}),
        (Mistake.INCOMPLETE, "clear.ml/fraction of container main"),
    ),
    Row(
        "C11 a part of the card with this index",
        asking({"nvidia.com/gpu-3": 2}),
        made(asks((C0, [FractionAsk(2 * EIGHTH, index=3)]))),
        written=reported("0.250"),
    ),
    Row(
        "C11 capped also where an image could bring its own cap",
        asking({"nvidia.com/gpu-3": 2}),
        made(asks((C0, [FractionAsk(2 * EIGHTH, index=3)]))),
        BY_IMAGE,
        reported("0.250"),
    ),
    Row(
        "C11 all of it",
        asking({"nvidia.com/gpu-0": "8", "nvidia.com/gpu-11": 1}),
        made(asks((C0, [FractionAsk(NANO_PER_DEVICE, index=0), FractionAsk(EIGHTH, index=11)]))),
        written=reported("1.000,0.125"),
    ),
    Row(
        "C11 two containers on one card",
        asking({"nvidia.com/gpu-1": 2}, {"nvidia.com/gpu-1": 3}, init=[{"nvidia.com/gpu-1": 8}]),
        made(
            asks(
                (C0, [FractionAsk(2 * EIGHTH, "gpu-1", 1)]),
                (C1, [FractionAsk(3 * EIGHTH, "gpu-1", 1)]),
                (I0, [FractionAsk(8 * EIGHTH, "gpu-1", 1)]),
            )
        ),
        written=Written(
            env={
                key: {"CLEARML_AGENT_GPU_FRACTIONS": text}
                for key, text in [("c0", "0.250"), ("c1", "0.375"), ("i0", "1.000")]
            }
        ),
    ),
    Row(
        "C11 as the injector writes it beside the label",
        labelled("0.5", {"nvidia.com/gpu-1": 4}),
        made(asks((C0, [FractionAsk(4 * EIGHTH, index=1)]))),
        written=reported("0.500"),
    ),
    Row(
        "C11 a sixteenth by index",
        labelled("0.0625", {"nvidia.com/gpu-1": 1}),
        made(asks((C0, [FractionAsk(62_500_000, index=1)]))),
        written=reported("0.0625"),
    ),
    Row(
        "C11 a whole card by index",
        labelled("1", {"nvidia.com/gpu-1": 8}),
        made(asks((C0, [FractionAsk(NANO_PER_DEVICE, index=1)]))),
        written=reported("1.000"),
    ),
    Row(
        "C11 two whole cards by index",
        labelled("2", {"nvidia.com/gpu-1": 8, "nvidia.com/gpu-4": 8}),
        made(asks((C0, [FractionAsk(NANO_PER_DEVICE, index=1), FractionAsk(NANO_PER_DEVICE, index=4)]))),
        written=reported("1.000,1.000"),
    ),
    Row("C11 one of two whole cards", labelled("2", {"nvidia.com/gpu-1": 8}), (Mistake.CONFLICTING, LABEL)),
    Row("C11 against the label", labelled("0.5", {"nvidia.com/gpu-1": 3}), (Mistake.CONFLICTING, LABEL)),
    Row(
        "C11 elsewhere than the label",
        labelled("0.5", {SLICE: 1}, {"nvidia.com/gpu-1": 4}),
        (Mistake.CONFLICTING, LABEL),
    ),
    Row(
        "C11 more than a card",
        asking({"nvidia.com/gpu-0": 9}),
        (Mistake.MALFORMED, "nvidia.com/gpu-0 of container main"),
    ),
    Row(
        "C11 more than a card together",
        asking({"nvidia.com/gpu-0": 5}, {"nvidia.com/gpu-0": 4}),
        (Mistake.MALFORMED, "nvidia.com/gpu-0"),
    ),
    Row(
        "C11 half a slice",
        asking({"nvidia.com/gpu-0": "0.5"}),
        (Mistake.MALFORMED, "nvidia.com/gpu-0 of container main"),
    ),
    Row(
        "C12 slices as memory, where that is chosen",
        asking({SLICE: 2}),
        made(asks((C0, [MemoryAsk(10240)] * 2)), edits=(ResourceEdit(C0, SLICE, None),)),
        settings(mig_as_memory=True),
    ),
    Row(
        "C13 memory in the tag of the image",
        pod(container("main", image="busybox"), container("side", image=IMAGE), hostPID=True),
        made(asks((C1, [MemoryAsk(8192)])), wishes=Wishes()),
        BY_IMAGE,
    ),
]

SILENT = [
    Row("C9 eight cards by default", asking({"nvidia.com/gpu": 8}), made(GpuRequest())),
    Row("C12 real MIG by default", asking({SLICE: 1}), made(GpuRequest())),
    Row("C13 not enabled", pod(container(image=IMAGE), hostPID=True), made(GpuRequest())),
    Row("C13 without host PIDs", pod(container(image=IMAGE)), made(GpuRequest()), BY_IMAGE),
    Row(
        "C13 beside a resource",
        pod(container(limits={"nvidia.com/gpu": 1}, image=IMAGE), hostPID=True),
        made(GpuRequest()),
        BY_IMAGE,
    ),
    Row(
        "C13 another tag",
        pod(container(image="clearml/fractional-gpu:8gb"), hostPID=True),
        made(GpuRequest()),
        BY_IMAGE,
    ),
    Row(
        "C14 a limit of a queue",
        asking({}, labels={"clear.ml/resource-usage": "0.5", "required-resources": "0.5"}),
        made(GpuRequest()),
    ),
    Row("C11 another resource", asking({"nvidia.com/gpu-mem-gb": 1, "nvidia.com/gpu-01": 1}), made(GpuRequest())),
]


def with_variables(row: Row) -> Row:
    """The row with what the agent reads (``written``) as what admission sets."""
    if not isinstance(row.expected, Translation):
        return row
    refs = {asking.container.key: asking.container for asking in row.expected.request.containers}
    env = tuple(EnvEdit(refs[key], name, text) for key, told in row.written.env.items() for name, text in told.items())
    return Row(row.name, row.pod, msgspec.structs.replace(row.expected, env=env), row.settings)


OWN = ("clear.ml/fraction-1", *(f"nvidia.com/gpu-{index}" for index in range(12)))
ROWS = [with_variables(without(row, *OWN)) for row in LISTED]


@parametrized(ROWS)
def test_a_row_of_the_table(row: Row) -> None:
    assert clearml.speaks(row.pod, row.settings) or clearml.claims(row.pod, row.settings)
    holds(row, clearml.translate)


@parametrized([row for row in ROWS if isinstance(row.expected, Translation)])
def test_nothing_is_left_to_write_at_the_binding(row: Row) -> None:
    assert isinstance(row.expected, Translation)
    assert clearml.written_back(row.expected, ()) == row.written == Written()


@parametrized(SILENT)
def test_what_is_no_request_of_clearml_is_left_alone(row: Row) -> None:
    assert not clearml.speaks(row.pod, row.settings)
    assert not clearml.claims(row.pod, row.settings)


def test_sixteen_sixteenths_fill_one_card() -> None:
    translation = of_kind(Translation, clearml.translate(labelled("0.0625"), DialectSettings()))
    [ask] = translation.request.shared
    assert isinstance(ask, FractionAsk)
    assert 16 * ask.nano == NANO_PER_DEVICE


# Only the record knows which of several containers held the count that was dropped, and which card was asked by index.
READ_AGAIN = [
    row
    for row in ROWS
    if isinstance(row.expected, Translation)
    and row.pod.metadata.labels
    and all(edit.container == C0 and "gpu-" not in edit.resource for edit in row.expected.edits)
]


@parametrized(READ_AGAIN)
def test_a_pod_that_was_through_admission_reads_the_same_again(row: Row) -> None:
    assert isinstance(row.expected, Translation)
    again = of_kind(Translation, clearml.translate(edited(row.pod, row.expected.edits), row.settings))
    assert again.request == row.expected.request
    assert again.edits == ()


TEXTS = st.one_of(
    st.text(max_size=30),
    st.text("0123456789.eE+-", max_size=12),
    st.decimals(0, 3, places=4).map(str),
    st.integers(-2, 300).map(str),
)
AMOUNTS = st.integers(-1, 10) | st.text("0123456789.mkie-", max_size=5) | st.floats(allow_nan=True)
RESOURCES = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu-0", "nvidia.com/gpu-7", SLICE, "clear.ml/fraction-1"]), AMOUNTS
)
CHOICES = st.builds(
    ClearmlSettings,
    legacy_replicas=st.sampled_from([0, 8]),
    round_up=st.booleans(),
    sixteenth_as_eighth=st.booleans(),
    by_image_tag=st.booleans(),
    mig_as_memory=st.booleans(),
)


@fuzzed
@given(st.none() | TEXTS, st.lists(RESOURCES, min_size=1, max_size=3), RESOURCES, CHOICES)
def test_whatever_is_written_the_answer_is_a_sound_request_or_a_refusal(
    label: str | None, limits: list[dict[str, Any]], init: dict[str, Any], chosen: ClearmlSettings
) -> None:
    labels = {} if label is None else {"clearml-injector/fraction": label}
    asked = asking(*limits, init=[init], labels=labels)
    choices = DialectSettings(clearml=chosen)
    answer = understood(lambda: clearml.translate(asked, choices))
    if answer is None:
        return
    for ask in answer.request.shared:
        assert ask.mem_mib > 0 if isinstance(ask, MemoryAsk) else 0 < ask.nano <= NANO_PER_DEVICE
    assert not (answer.request.is_shared and answer.request.whole)


@fuzzed
@given(TEXTS)
def test_a_label_is_one_of_those_that_the_origin_has_or_refused(text: str) -> None:
    answer = clearml.translate(labelled(text), DialectSettings())
    if isinstance(answer, Refusal):
        assert answer.field == LABEL
        assert answer.code in {Mistake.MALFORMED, Mistake.TOO_MANY}
    elif answer.request.whole:
        assert float(text) == answer.request.whole
    else:
        [ask] = answer.request.shared
        assert isinstance(ask, FractionAsk)
        assert ask.nano in {62_500_000, *(EIGHTH * eighths for eighths in range(1, 8))}
        assert float(text) * NANO_PER_DEVICE == pytest.approx(ask.nano, abs=1)
