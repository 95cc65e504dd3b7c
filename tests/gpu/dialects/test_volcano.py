"""Volcano: the rows V1-V16 of docs/reference/dialects.md."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.dialects import kai, volcano, volcano_share
from gpu.dialects.settings import DialectSettings, VolcanoSettings
from gpu.request import Ask, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import (
    Cards,
    GivenDevice,
    Mistake,
    Note,
    NoteCode,
    Refusal,
    ResourceEdit,
    Translation,
    Wishes,
    Written,
)
from tests.fuzzing import fuzzed
from tests.gpu.dialects.pods import C0, C1, I0, asking, understood
from tests.values import of_kind
from wire.core import Pod

GPU = "nvidia.com/gpu"
NUMBER, MEM, PERCENT, CORES = (f"volcano.sh/vgpu-{name}" for name in ("number", "memory", "memory-percentage", "cores"))
SHARE_MEM, SHARE_NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
DEFAULTS = DialectSettings()
MEMORY_CAP = Wishes(memory_cap=True)
BOTH_CAPS = Wishes(memory_cap=True, compute_cap=True)


def request(*asks: Ask, where: ContainerRef = C0) -> GpuRequest:
    return GpuRequest((ContainerRequest(where, asks),))


def out(*resources: str, where: ContainerRef = C0) -> tuple[ResourceEdit, ...]:
    return tuple(ResourceEdit(where, name, None) for name in resources)


def slices(asked: GpuRequest, **more: Any) -> Translation:
    return Translation(dialect="volcano", request=asked, **more)


def share(asked: GpuRequest, **more: Any) -> Translation:
    return Translation(dialect="volcano-share", request=asked, **more)


def on_one(mem_mib: int) -> MemoryAsk:
    return MemoryAsk(mem_mib, seat="a")


@pytest.mark.parametrize(
    ("pod", "factor", "expected"),
    [
        pytest.param(
            asking({NUMBER: 2, MEM: 3000}),
            1,
            slices(request(MemoryAsk(3000), MemoryAsk(3000)), wishes=MEMORY_CAP, edits=out(NUMBER, MEM)),
            id="V1",
        ),
        pytest.param(
            asking({MEM: 3000}), 1, slices(request(MemoryAsk(3000)), wishes=MEMORY_CAP, edits=out(MEM)), id="V2"
        ),
        pytest.param(
            asking({NUMBER: 1, PERCENT: 25}),
            1,
            slices(request(FractionAsk(250_000_000)), wishes=MEMORY_CAP, edits=out(NUMBER, PERCENT)),
            id="V3",
        ),
        pytest.param(
            asking({NUMBER: 1, PERCENT: 25, MEM: 100}),
            1,
            slices(
                request(MemoryAsk(100)),
                wishes=MEMORY_CAP,
                notes=(Note(NoteCode.NO_EFFECT, f"{PERCENT} of container main", "25"),),
                edits=out(NUMBER, MEM, PERCENT),
            ),
            id="V3-both",
        ),
        pytest.param(
            asking({NUMBER: 2}),
            1,
            slices(request(WholeAsk(), WholeAsk()), edits=(*out(NUMBER), ResourceEdit(C0, GPU, 2))),
            id="V4",
        ),
        pytest.param(
            asking({NUMBER: 1, MEM: 3000, CORES: 40}),
            1,
            slices(request(MemoryAsk(3000, compute_percent=40)), wishes=BOTH_CAPS, edits=out(NUMBER, MEM, CORES)),
            id="V5",
        ),
        pytest.param(
            asking({MEM: 3000, CORES: 100}),
            1,
            slices(
                request(WholeAsk()),
                notes=(Note(NoteCode.EXCLUSIVE, f"{CORES} of container main", "100", "a whole device"),),
                edits=(*out(MEM, CORES), ResourceEdit(C0, GPU, 1)),
            ),
            id="V6",
        ),
        pytest.param(
            asking({NUMBER: 0, MEM: 7}),
            1,
            slices(
                GpuRequest(), notes=(Note(NoteCode.NO_EFFECT, f"{MEM} of container main", "7"),), edits=out(NUMBER, MEM)
            ),
            id="V7",
        ),
        pytest.param(
            asking({NUMBER: 1, MEM: 3}),
            1024,
            slices(request(MemoryAsk(3072)), wishes=MEMORY_CAP, unit=1024, edits=out(NUMBER, MEM)),
            id="V1-setting",
        ),
        pytest.param(
            asking({}, init=[{MEM: 5}]),
            1,
            slices(
                request(MemoryAsk(5), where=I0),
                wishes=MEMORY_CAP,
                notes=(Note(NoteCode.MORE_THAN_ORIGIN, "init container load", "1 devices"),),
                edits=out(MEM, where=I0),
            ),
            id="V9",
        ),
        pytest.param(
            asking({MEM: 5}, {MEM: 6}),
            1,
            slices(
                GpuRequest((ContainerRequest(C0, (on_one(5),)), ContainerRequest(C1, (on_one(6),)))),
                alternatives=(
                    GpuRequest((ContainerRequest(C0, (MemoryAsk(5),)), ContainerRequest(C1, (MemoryAsk(6),)))),
                ),
                wishes=MEMORY_CAP,
                edits=(*out(MEM), *out(MEM, where=C1)),
            ),
            id="V10",
        ),
    ],
)
def test_vgpu_resources_say_slices_of_how_many_devices(pod: Pod, factor: int, expected: Translation) -> None:
    settings = DialectSettings(volcano=VolcanoSettings(memory_factor=factor))
    assert volcano.speaks(pod, settings)
    assert volcano.translate(pod, settings) == expected


@pytest.mark.parametrize(
    ("annotations", "changed"),
    [
        pytest.param({"volcano.sh/vgpu-mode": "mig"}, {"wishes": Wishes(memory_cap=True, mode="mig")}, id="V8-mode"),
        pytest.param(
            {"volcano.sh/vgpu-use-gpuuuid": "GPU-a", "nvidia.com/nouse-gputype": "T4"},
            {"cards": Cards(uuids=("GPU-a",), not_products=("t4",))},
            id="V8-cards",
        ),
        pytest.param(
            {"volcano.sh/vgpu-podgroup-policy": "spread"},
            {
                "strategy": "spread",
                "notes": (Note(NoteCode.APPROXIMATED, "volcano.sh/vgpu-podgroup-policy", "spread", "spread"),),
            },
            id="V8-spread",
        ),
        pytest.param({"nvidia.com/use-gpuuuid": "GPU-a", "nvidia.com/vgpu-mode": "x"}, {}, id="V8-not-hamis"),
    ],
)
def test_annotations_say_which_cards_and_how(annotations: dict[str, str], changed: dict[str, Any]) -> None:
    plain = slices(request(MemoryAsk(5)), wishes=MEMORY_CAP, edits=out(MEM))
    found = volcano.translate(asking({MEM: 5}, annotations=annotations), DEFAULTS)
    assert found == msgspec.structs.replace(plain, **changed)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(asking({SHARE_MEM: 1024}), share(request(on_one(1024)), edits=out(SHARE_MEM)), id="V11"),
        pytest.param(
            asking({SHARE_MEM: 1024}, {}, {SHARE_MEM: 5}, init=[{SHARE_MEM: 2000}]),
            share(
                GpuRequest(
                    (
                        ContainerRequest(C0, (on_one(1024),)),
                        ContainerRequest(msgspec.structs.replace(C1, index=2, name="third"), (on_one(5),)),
                        ContainerRequest(I0, (on_one(2000),)),
                    )
                ),
                edits=(
                    *out(SHARE_MEM),
                    *out(SHARE_MEM, where=msgspec.structs.replace(C1, index=2, name="third")),
                    *out(SHARE_MEM, where=I0),
                ),
            ),
            id="V12",
        ),
        pytest.param(
            asking({SHARE_NUMBER: 2}),
            share(request(WholeAsk(), WholeAsk()), edits=(*out(SHARE_NUMBER), ResourceEdit(C0, GPU, 2))),
            id="V13",
        ),
        pytest.param(asking({SHARE_MEM: 0}), share(GpuRequest(), edits=out(SHARE_MEM)), id="V14"),
        pytest.param(
            asking({SHARE_MEM: 7, SHARE_NUMBER: 0}, annotations={"volcano.sh/gpu-index": "3"}),
            share(request(on_one(7)), edits=out(SHARE_MEM, SHARE_NUMBER)),
            id="V16-ignored",
        ),
    ],
)
def test_gpu_share_is_memory_of_one_card_or_whole_cards(pod: Pod, expected: Translation) -> None:
    assert volcano_share.speaks(pod, DEFAULTS)
    assert volcano_share.translate(pod, DEFAULTS) == expected
    assert not volcano.speaks(pod, DEFAULTS)


def test_gpu_share_counts_what_the_containers_use_at_one_time() -> None:
    """V12: 1024 and 5 run together, after an init container with 2000."""
    found = volcano_share.translate(asking({SHARE_MEM: 1024}, {SHARE_MEM: 5}, init=[{SHARE_MEM: 2000}]), DEFAULTS)
    assert isinstance(found, Translation)
    (ask,) = found.request.shared
    assert isinstance(ask, MemoryAsk)
    assert ask.mem_mib == 2000


MALFORMED = "a whole number, the same in limits and requests"
REFUSED = [
    ("V7-cores", volcano, {CORES: 30}, Mistake.INCOMPLETE, CORES, f"beside {NUMBER} or {MEM}"),
    ("V7-percent", volcano, {PERCENT: 30}, Mistake.INCOMPLETE, PERCENT, f"beside {NUMBER} or {MEM}"),
    ("V3-above", volcano, {NUMBER: 1, PERCENT: 150}, Mistake.MALFORMED, PERCENT, "0 to 100"),
    ("V5-above", volcano, {NUMBER: 1, CORES: 101}, Mistake.MALFORMED, CORES, "0 to 100"),
    ("V1-suffix", volcano, {MEM: "3Gi"}, Mistake.MALFORMED, MEM, "0 to 2147483647"),
    ("V1-half", volcano, {NUMBER: "0.5"}, Mistake.MALFORMED, NUMBER, MALFORMED),
    ("V1-many", volcano, {NUMBER: 1000}, Mistake.TOO_MANY, NUMBER, "1 to 256"),
    ("V4-beside", volcano, {NUMBER: 2, GPU: 1}, Mistake.CONFLICTING, GPU, f"either {NUMBER} or {GPU}"),
    ("V11-suffix", volcano_share, {SHARE_MEM: "16Gi"}, Mistake.MALFORMED, SHARE_MEM, "0 to 2147483647"),
    ("V11-half", volcano_share, {SHARE_MEM: "0.5"}, Mistake.MALFORMED, SHARE_MEM, MALFORMED),
    ("V13-many", volcano_share, {SHARE_NUMBER: 300}, Mistake.TOO_MANY, SHARE_NUMBER, "1 to 256"),
    ("V13-beside", volcano_share, {SHARE_MEM: 5, GPU: 1}, Mistake.CONFLICTING, GPU, f"either {SHARE_MEM} or {GPU}"),
    (
        "V15-modes",
        volcano_share,
        {SHARE_MEM: 5, NUMBER: 1},
        Mistake.CONFLICTING,
        SHARE_MEM,
        f"one of {SHARE_MEM}, {SHARE_NUMBER} and {NUMBER}",
    ),
    (
        "V15-both",
        volcano_share,
        {SHARE_MEM: 5, SHARE_NUMBER: 1},
        Mistake.CONFLICTING,
        SHARE_MEM,
        f"one of {SHARE_MEM}, {SHARE_NUMBER} and {NUMBER}",
    ),
]


@pytest.mark.parametrize(
    ("factor", "unit", "most"), [(1, "in MiB as", 2**31 - 1), (1024, "in units of 1024 MiB as", (2**31 - 1) // 1024)]
)
def test_too_much_memory_is_refused_in_the_unit_of_the_cluster(factor: int, unit: str, most: int) -> None:
    own = DialectSettings(volcano=VolcanoSettings(memory_factor=factor))
    refusal = of_kind(Refusal, volcano.translate(asking({NUMBER: 1, MEM: most + 1}), own))
    assert unit in refusal.message
    assert refusal.allowed == f"0 to {most}"
    assert isinstance(volcano.translate(asking({NUMBER: 1, MEM: most}), own), Translation)


@pytest.mark.parametrize(
    ("module", "limits", "code", "name", "allowed"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_what_cannot_be_meant_is_refused_by_name(
    module: Any, limits: dict[str, Any], code: Mistake, name: str, allowed: str
) -> None:
    refusal = of_kind(Refusal, module.translate(asking(limits), DEFAULTS))
    assert (refusal.code, refusal.field, refusal.allowed) == (code, f"{name} of container main", allowed)


def test_slices_of_several_containers_are_written_one_after_the_other() -> None:
    """V10: containers that ask for nothing have no place in the lists."""
    found = of_kind(Translation, volcano.translate(asking({MEM: 5}, {}, {NUMBER: 1, PERCENT: 10, CORES: 7}), DEFAULTS))
    given = [GivenDevice("GPU-a", 0, 15109, 1), GivenDevice("GPU-b", 1, 15109, 1)]
    text = "GPU-a,NVIDIA,5,0:;GPU-b,NVIDIA,1510,7:"
    assert volcano.written_back(found, given, node="n", at_ns=1_700_000_000_500_000_000) == Written(
        env={
            "c0": {"CUDA_DEVICE_MEMORY_LIMIT_0": "5m", "CUDA_DEVICE_SM_LIMIT": "0"},
            "c2": {"CUDA_DEVICE_MEMORY_LIMIT_0": "1510m", "CUDA_DEVICE_SM_LIMIT": "7"},
        },
        annotations={
            "volcano.sh/vgpu-ids-new": text,
            "volcano.sh/devices-to-allocate": text,
            "volcano.sh/vgpu-node": "n",
            "volcano.sh/vgpu-time": "1700000000",
            "volcano.sh/bind-time": "1700000000",
            "volcano.sh/bind-phase": "success",
        },
    )


def test_gpu_share_writes_the_index_of_the_card_and_each_containers_part() -> None:
    """V16."""
    found = of_kind(Translation, volcano_share.translate(asking({SHARE_MEM: 1024}, {SHARE_MEM: 5}), DEFAULTS))
    written = volcano_share.written_back(found, [GivenDevice("GPU-d", 3, 10989, 1)], at_ns=42)
    assert written == Written(
        env={
            "c0": {"VOLCANO_GPU_ALLOCATED": "1024", "VOLCANO_GPU_TOTAL": "10989"},
            "c1": {"VOLCANO_GPU_ALLOCATED": "5", "VOLCANO_GPU_TOTAL": "10989"},
        },
        annotations={"volcano.sh/gpu-index": "3", "volcano.sh/predicate-time": "42"},
    )


def test_with_a_factor_lists_are_in_units_and_limits_in_mib() -> None:
    """V10."""
    settings = DialectSettings(volcano=VolcanoSettings(memory_factor=1024))
    found = of_kind(Translation, volcano.translate(asking({MEM: 3}), settings))
    written = volcano.written_back(found, [GivenDevice("GPU-a", 0, 15109, 1)], node="n", at_ns=0)
    assert written.annotations["volcano.sh/vgpu-ids-new"] == "GPU-a,NVIDIA,3,0:"
    assert written.env["c0"]["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3072m"


def test_whole_cards_are_the_vendors_and_read_the_same_after_the_edits() -> None:
    """V4, V13."""
    slices_found = volcano.translate(asking({NUMBER: 2}), DEFAULTS)
    share_found = volcano_share.translate(asking({SHARE_NUMBER: 2}), DEFAULTS)
    assert isinstance(slices_found, Translation)
    assert isinstance(share_found, Translation)
    assert volcano.written_back(slices_found, [], node="n", at_ns=0) == Written()
    assert volcano_share.written_back(share_found, [], at_ns=0) == Written()
    for found in (slices_found, share_found):
        count = next(edit.count for edit in found.edits if edit.count)
        assert kai.translate(asking({GPU: count})) == found.request


QUANTITIES = st.one_of(
    st.integers(-5, 2**70),
    st.floats(),
    st.text(max_size=8),
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,2})?(m|k|M|Mi|Gi|e[0-9])?", fullmatch=True),
    st.integers(0, 110).map(str),
)
LIMITS = st.dictionaries(st.sampled_from([NUMBER, MEM, PERCENT, CORES, SHARE_MEM, SHARE_NUMBER, GPU]), QUANTITIES)


@fuzzed
@given(LIMITS, LIMITS, st.sampled_from([volcano, volcano_share]))
def test_whatever_is_written_the_answer_is_sound_or_a_refusal(
    first: dict[str, Any], init: dict[str, Any], module: Any
) -> None:
    pod = asking(first, init=[init])
    if not module.speaks(pod, DEFAULTS):
        return
    answer = understood(lambda: module.translate(pod, DEFAULTS))
    if answer is None:
        return
    for asked in (answer.request, *answer.alternatives):
        for ask in asked.shared:
            amount, most = (ask.mem_mib, 2 * (2**31 - 1)) if isinstance(ask, MemoryAsk) else (ask.nano, NANO_PER_DEVICE)
            assert type(amount) is int
            assert 0 < amount <= most
