"""NvFractions: the rows F1-F14 of docs/reference/dialects.md."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.dialects import nvfractions
from gpu.dialects.nvfractions import is_written
from gpu.dialects.settings import DialectSettings
from gpu.request import Ask, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, MigAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import GivenDevice, Mistake, Note, NoteCode, Refusal, Translation, Wishes, Written
from tests.fuzzing import fuzzed
from tests.gpu.dialects.pods import C0, C1, I0, asking, understood
from tests.values import of_kind
from wire.core import Pod

DEFAULTS = DialectSettings()
PREFIX = "nvidia.com/container."
REQUEST, LIMIT, MODE = (
    f"{PREFIX}main.gpu-memory.request",
    f"{PREFIX}main.gpu-memory.limit",
    f"{PREFIX}main.gpu-compute.mode",
)
PORTION = "kai.scheduler/container.main.gpu-memory.portion.limit"
SLICED = Wishes(memory_cap=True, mode="time-slicing")


def annotated(annotations: dict[str, str], *limits: dict[str, Any]) -> Pod:
    return asking(*(limits or ({}, {})), init=[{}], annotations=annotations)


def share(*asks: Ask, where: ContainerRef = C0, wishes: Wishes = SLICED, notes: tuple[Note, ...] = ()) -> Translation:
    request = GpuRequest((ContainerRequest(where, asks),)) if asks else GpuRequest()
    return Translation(dialect="nvfractions", request=request, wishes=wishes, notes=notes)


HALF = FractionAsk(NANO_PER_DEVICE // 2)
SHARES = [
    ("F1", {REQUEST: "8Gi"}, share(MemoryAsk(8192))),
    ("F1-ceil", {REQUEST: "1"}, share(MemoryAsk(1))),
    ("F1-decimal", {REQUEST: "8G"}, share(MemoryAsk(7630))),
    ("F1-side", {f"{PREFIX}side.gpu-memory.request": "1Gi"}, share(MemoryAsk(1024), where=C1)),
    ("F2", {REQUEST: "8Gi", LIMIT: "12Gi"}, share(MemoryAsk(8192, limit_mib=12288))),
    ("F2-equal", {REQUEST: "8Gi", LIMIT: "8192Mi"}, share(MemoryAsk(8192))),
    ("F3", {LIMIT: "8Gi"}, share(MemoryAsk(8192))),
    (
        "F4",
        {REQUEST: "8Gi", MODE: "sm-sharing"},
        share(MemoryAsk(8192), wishes=Wishes(memory_cap=True, mode="sm-sharing")),
    ),
    ("F5", {REQUEST: "8Gi", "gpu-fraction-num-devices": "2"}, share(MemoryAsk(8192), MemoryAsk(8192))),
    ("F5-named", {REQUEST: "8Gi", "gpu-fraction-container-name": "main"}, share(MemoryAsk(8192))),
    ("F6", {"gpu-fraction": "0.5", MODE: "sm-sharing"}, share(HALF, wishes=Wishes(memory_cap=True, mode="sm-sharing"))),
    ("F6-memory", {"gpu-memory": "2000", MODE: "time-slicing"}, share(MemoryAsk(2000))),
    (
        "F6-other",
        {"gpu-fraction": "0.5", f"{PREFIX}side.gpu-compute.mode": "sm-sharing"},
        share(HALF, notes=(Note(NoteCode.NO_EFFECT, f"{PREFIX}side.gpu-compute.mode", "sm-sharing"),)),
    ),
    (
        "F7",
        {REQUEST: "2000Mi", "gpu-memory": "2000"},
        share(MemoryAsk(2000), notes=(Note(NoteCode.SAID_TWICE, "gpu-memory", "2000", REQUEST),)),
    ),
    (
        "F7-fraction",
        {REQUEST: "2000Mi", "gpu-fraction": "0.5"},
        share(MemoryAsk(2000), notes=(Note(NoteCode.SAID_TWICE, "gpu-fraction", "0.5", REQUEST),)),
    ),
    ("F8", {"gpu-fraction": "0.5", PORTION: "0.75"}, share(FractionAsk(HALF.nano, limit_nano=750_000_000))),
    ("F9", {f"{PREFIX}load.gpu-memory.request": "1Gi"}, share(MemoryAsk(1024), where=I0)),
    ("F12", {REQUEST: "8Gi", f"{PREFIX}main.gpus.devices": "GPU-a"}, share(MemoryAsk(8192))),
    ("F13", {MODE: "sm-sharing"}, share(wishes=Wishes(), notes=(Note(NoteCode.NO_EFFECT, MODE, "sm-sharing"),))),
]


@pytest.mark.parametrize(("annotations", "expected"), [pytest.param(*row[1:], id=row[0]) for row in SHARES])
def test_annotations_say_how_much_memory_of_one_container(annotations: dict[str, str], expected: Translation) -> None:
    pod = annotated(annotations)
    assert nvfractions.speaks(pod, DEFAULTS)
    assert nvfractions.translate(pod, DEFAULTS) == expected


def test_mig_slices_and_whole_gpus_stand_beside_as_in_kai() -> None:
    mig = nvfractions.translate(annotated({REQUEST: "8Gi"}, {"nvidia.com/mig-1g.5gb": 1}), DEFAULTS)
    assert mig == share(MemoryAsk(8192), MigAsk("1g.5gb"))
    whole = nvfractions.translate(annotated({MODE: "sm-sharing"}, {"nvidia.com/gpu": 1}), DEFAULTS)
    assert whole == share(WholeAsk(), wishes=Wishes(), notes=(Note(NoteCode.NO_EFFECT, MODE, "sm-sharing"),))


@pytest.mark.parametrize(
    "key",
    [
        f"{PREFIX}main.gpus.devices",
        f"{PREFIX}main.gpu-compute.portion",
        "nvidia.com/gpu.memory",
        "gpu-memory",
        "kai.scheduler/container.main.other",
        "example.com/container.main.gpu-memory.portion.limit",
    ],
)
def test_what_a_binding_writes_and_what_others_mean_is_no_request(key: str) -> None:
    """F12, K13: a pod that KAI has bound reads as before, and a node's label pasted as an annotation is not ours."""
    assert not nvfractions.speaks(annotated({key: "8Gi"}), DEFAULTS)
    assert is_written(key) == key.startswith(PREFIX)


QUANTITY = "{} annotation value must be a valid Kubernetes memory quantity greater than 0"
SMALLER = f"{PORTION} annotation value must be a positive number smaller than 1.0"
MALFORMED, CONFLICTING = Mistake.MALFORMED, Mistake.CONFLICTING
REFUSED = [
    ("F11-zero", {REQUEST: "0"}, MALFORMED, REQUEST, QUANTITY.format(REQUEST)),
    ("F11-negative", {LIMIT: "-1Gi"}, MALFORMED, LIMIT, QUANTITY.format(LIMIT)),
    ("F11-text", {REQUEST: "8 Gi"}, MALFORMED, REQUEST, QUANTITY.format(REQUEST)),
    ("F11-mode", {MODE: "mps"}, MALFORMED, MODE, "invalid NvFractions compute mode: mps"),
    (
        "F11-key",
        {f"{PREFIX}main.gpu-memory": "1"},
        MALFORMED,
        f"{PREFIX}main.gpu-memory",
        f"invalid NvFractions annotation key: {PREFIX}main.gpu-memory",
    ),
    (
        "F11-no-name",
        {f"{PREFIX}.gpu-memory.limit": "1"},
        MALFORMED,
        f"{PREFIX}.gpu-memory.limit",
        f"invalid NvFractions annotation key: {PREFIX}.gpu-memory.limit",
    ),
    (
        "F11-unknown",
        {f"{PREFIX}x.gpu-memory.limit": "1"},
        Mistake.UNKNOWN_CONTAINER,
        f"{PREFIX}x.gpu-memory.limit",
        "container x not found in pod spec, but a fractional annotation referencing it was found",
    ),
    (
        "F2-above",
        {REQUEST: "2Gi", LIMIT: "1Gi"},
        CONFLICTING,
        REQUEST,
        "invalid fraction request for container main: request is greater than limit",
    ),
    (
        "F9-several",
        {REQUEST: "1Gi", f"{PREFIX}side.gpu-memory.limit": "1Gi"},
        CONFLICTING,
        f"{PREFIX}side.gpu-memory.limit",
        "currently, kai doesn't support multiple containers with fractional GPU requests",
    ),
    (
        "F5-other",
        {REQUEST: "1Gi", "gpu-fraction-container-name": "side"},
        CONFLICTING,
        "gpu-fraction-container-name",
        "gpu-fraction-container-name annotation value side does not match container name main",
    ),
    (
        "F5-count",
        {REQUEST: "1Gi", "gpu-fraction-num-devices": "0"},
        MALFORMED,
        "gpu-fraction-num-devices",
        "fraction count annotation value must be a positive integer greater than 0",
    ),
    (
        "F5-alone",
        {MODE: "sm-sharing", "gpu-fraction-num-devices": "2"},
        Mistake.INCOMPLETE,
        "gpu-fraction-num-devices",
        "cannot request multiple fractional devices without specifying fraction details (portion or memory)",
    ),
    (
        "F7-limit",
        {LIMIT: "1Gi", "gpu-memory": "1024"},
        CONFLICTING,
        LIMIT,
        "cannot combine nvidia.com/container. limit annotation with gpu-fraction or gpu-memory annotation",
    ),
    (
        "F7-both",
        {REQUEST: "1Gi", "gpu-memory": "1024", "gpu-fraction": "0.5"},
        CONFLICTING,
        "gpu-fraction",
        "cannot request both gpu-fraction and GPU memory request",
    ),
    (
        "F7-differs",
        {REQUEST: "1Gi", "gpu-memory": "1000"},
        CONFLICTING,
        REQUEST,
        "NvFractions memory request (1Gi) does not match gpu-memory annotation value (1000 MiB)",
    ),
    (
        "F8-alone",
        {PORTION: "0.5"},
        Mistake.INCOMPLETE,
        PORTION,
        f"{PORTION} annotation can only be used together with the gpu-fraction annotation",
    ),
    (
        "F8-below",
        {PORTION: "0.5", "gpu-fraction": "0.5"},
        MALFORMED,
        PORTION,
        f"{PORTION} annotation value (0.5) must be greater than gpu-fraction annotation value (0.5)",
    ),
    ("F8-one", {PORTION: "1", "gpu-fraction": "0.5"}, MALFORMED, PORTION, SMALLER),
    ("F8-text", {PORTION: "half", "gpu-fraction": "0.5"}, MALFORMED, PORTION, SMALLER),
    (
        "F8-places",
        {PORTION: "0.500001", "gpu-fraction": "0.5"},
        MALFORMED,
        PORTION,
        f"{PORTION} annotation value must have at most 5 digits after the decimal point",
    ),
    (
        "F8-side",
        {PORTION.replace("main", "side"): "0.6", "gpu-fraction": "0.5"},
        CONFLICTING,
        PORTION.replace("main", "side"),
        PORTION.replace("main", "side")
        + " annotation container name side does not match the gpu-fraction target container",
    ),
    (
        "F8-named",
        {PORTION: "0.6", "gpu-fraction": "0.5", "gpu-fraction-container-name": "side"},
        CONFLICTING,
        PORTION,
        f"gpu-fraction-container-name annotation value side does not match container name main in {PORTION} annotation",
    ),
    (
        "F8-fraction",
        {PORTION: "0.6", "gpu-fraction": "x"},
        MALFORMED,
        "gpu-fraction",
        "gpu-fraction annotation value must be a positive number smaller than 1.0",
    ),
]


@pytest.mark.parametrize(
    ("annotations", "code", "field", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_a_mistake_is_refused_in_the_words_of_kai(
    annotations: dict[str, str], code: Mistake, field: str, message: str
) -> None:
    refusal = of_kind(Refusal, nvfractions.translate(annotated(annotations), DEFAULTS))
    assert (refusal.code, refusal.field, refusal.message) == (code, field, message)
    assert refusal.allowed


def test_whole_gpus_beside_are_refused_in_any_container() -> None:
    """F10."""
    refusal = nvfractions.translate(annotated({REQUEST: "1Gi"}, {}, {"nvidia.com/gpu": "0"}), DEFAULTS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field) == (Mistake.CONFLICTING, REQUEST)
    assert refusal.message == "cannot have both GPU fraction request and whole GPU resource request/limit"


@pytest.mark.parametrize("annotations", [{REQUEST: "1Gi"}, {"gpu-memory": "5", MODE: "sm-sharing"}], ids=["F10", "F6"])
def test_shares_are_refused_where_sharing_is_switched_off(annotations: dict[str, str]) -> None:
    refusal = of_kind(Refusal, nvfractions.translate(annotated(annotations), DialectSettings(sharing=False)))
    assert refusal.code is Mistake.DISABLED
    assert (
        refusal.message == "attempting to create a pod team/p with gpu sharing request, while GPU sharing is disabled"
    )


@pytest.mark.parametrize(
    ("annotations", "cdi", "written"),
    [
        pytest.param({REQUEST: "8Gi"}, False, {"gpus.devices": "GPU-0"}, id="F14"),
        pytest.param(
            {REQUEST: "8Gi", "gpu-fraction-num-devices": "2"},
            True,
            {"gpus.devices": "k8s.device-plugin.nvidia.com/gpu=GPU-0,k8s.device-plugin.nvidia.com/gpu=GPU-1"},
            id="F14-cdi",
        ),
        pytest.param(
            {"gpu-fraction": "0.5", PORTION: "0.75"},
            False,
            {"gpus.devices": "GPU-0", "gpu-memory.request": "40Gi", "gpu-memory.limit": "60Gi"},
            id="F14-fraction",
        ),
        pytest.param({MODE: "sm-sharing"}, False, {}, id="F14-nothing"),
    ],
)
def test_devices_and_memory_are_written_as_the_runtime_reads_them(
    annotations: dict[str, str], cdi: bool, written: dict[str, str]
) -> None:
    found = of_kind(Translation, nvfractions.translate(annotated(annotations), DEFAULTS))
    given = [GivenDevice(f"GPU-{n}", n, 81920, 1) for n in range(len(found.request.shared))]
    expected = {f"{PREFIX}main.{name}": text for name, text in written.items()}
    assert nvfractions.written_back(found, given, cdi=cdi) == Written(annotations=expected)


VALUES = st.one_of(
    st.text(max_size=10),
    st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{1,6})?(Mi|Gi|M|e3)?", fullmatch=True),
    st.sampled_from(["time-slicing", "sm-sharing", "main", "side", "0.5", "0.75"]),
)
KEYS = st.one_of(
    st.sampled_from(
        [
            REQUEST,
            LIMIT,
            MODE,
            PORTION,
            "gpu-fraction",
            "gpu-memory",
            "gpu-fraction-num-devices",
            "gpu-fraction-container-name",
        ]
    ),
    st.builds(lambda tail: PREFIX + tail, st.text(max_size=20)),
)


@fuzzed
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_whatever_is_written_the_answer_is_sound_or_a_refusal(annotations: dict[str, str]) -> None:
    pod = annotated(annotations)
    answer = understood(lambda: nvfractions.translate(pod, DEFAULTS))
    if answer is None:
        return
    for ask in answer.request.shared:
        if isinstance(ask, MemoryAsk):
            assert type(ask.mem_mib) is type(ask.limit_mib) is int
            assert ask.mem_mib > 0
            assert not ask.limit_mib or ask.limit_mib > ask.mem_mib
        else:
            assert 0 < ask.nano <= NANO_PER_DEVICE
            assert not ask.limit_nano or ask.nano < ask.limit_nano < NANO_PER_DEVICE
