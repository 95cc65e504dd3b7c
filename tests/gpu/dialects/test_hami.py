"""HAMi: the rows H1-H18 and T3-T5 of docs/reference/dialects.md."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.device_plugin import MOST_DEVICES
from gpu.dialects import hami, kai
from gpu.dialects.settings import DialectSettings, HamiSettings
from gpu.request import Ask, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, MigAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import (
    Cards,
    EnvEdit,
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

GPU, MEM, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
CORES, PRIORITY = "nvidia.com/gpucores", "nvidia.com/priority"
ALL = FractionAsk(NANO_PER_DEVICE)
DEFAULTS = DialectSettings()
MEMORY_CAP = Wishes(memory_cap=True)


def settings(**own: Any) -> DialectSettings:
    return DialectSettings(hami=HamiSettings(**own))


def percent(of: int, **more: Any) -> FractionAsk:
    return FractionAsk(of * 10_000_000, **more)


def request(*asks: Ask, where: ContainerRef = C0) -> GpuRequest:
    return GpuRequest((ContainerRequest(where, asks),))


def out(*resources: str, where: ContainerRef = C0) -> tuple[ResourceEdit, ...]:
    return tuple(ResourceEdit(where, name, None) for name in resources)


def translated(asked: GpuRequest, **more: Any) -> Translation:
    return Translation(dialect="hami", request=asked, **more)


def note(code: NoteCode, name: str, value: str, instead: str = "") -> Note:
    return Note(code, f"{name} of container main", value, instead)


def case(row: str, pod: Pod, expected: Translation, own: DialectSettings = DEFAULTS) -> Any:
    return pytest.param(pod, own, expected, id=row)


SLICES = [
    case(
        "H1",
        asking({GPU: 2, MEM: 3000}),
        translated(request(MemoryAsk(3000), MemoryAsk(3000)), wishes=MEMORY_CAP, edits=out(MEM, GPU)),
    ),
    case("H2", asking({MEM: "3000"}), translated(request(MemoryAsk(3000)), wishes=MEMORY_CAP, edits=out(MEM))),
    case(
        "H2-setting",
        asking({MEM: 3000}),
        translated(request(MemoryAsk(3000), MemoryAsk(3000)), wishes=MEMORY_CAP, edits=out(MEM)),
        settings(default_gpus=2),
    ),
    case(
        "H3",
        asking({GPU: 1, PERCENT: 33}),
        translated(request(percent(33)), wishes=MEMORY_CAP, edits=out(PERCENT, GPU)),
    ),
    case("H3-whole", asking({GPU: 1, PERCENT: 100}), translated(request(WholeAsk()), edits=out(PERCENT))),
    case(
        "H4",
        asking({GPU: 1, MEM: 3000, PERCENT: 50}),
        translated(
            request(MemoryAsk(3000)),
            wishes=MEMORY_CAP,
            notes=(note(NoteCode.NO_EFFECT, PERCENT, "50"),),
            edits=out(MEM, PERCENT, GPU),
        ),
    ),
    case(
        "H3-whole with a cap on compute",
        asking({GPU: 1, PERCENT: 100, CORES: 1}),
        translated(
            request(FractionAsk(NANO_PER_DEVICE, compute_percent=1)),
            wishes=Wishes(compute_cap=True),
            edits=out(PERCENT, CORES, GPU),
        ),
    ),
    case("H5", asking({GPU: 2, MEM: 0}), translated(request(WholeAsk(), WholeAsk()), edits=out(MEM))),
    case(
        "H5-setting",
        asking({GPU: 1, CORES: 30}),
        translated(
            request(MemoryAsk(5000, compute_percent=30)),
            wishes=Wishes(memory_cap=True, compute_cap=True),
            edits=out(CORES, GPU),
        ),
        settings(default_mem_mib=5000),
    ),
    case(
        "H6",
        asking({GPU: 2, MEM: 3000, CORES: 30}),
        translated(
            request(*[MemoryAsk(3000, compute_percent=30)] * 2),
            wishes=Wishes(memory_cap=True, compute_cap=True),
            edits=out(MEM, CORES, GPU),
        ),
    ),
    case(
        "H6-setting",
        asking({GPU: 1, MEM: 3000}),
        translated(
            request(MemoryAsk(3000, compute_percent=20)),
            wishes=Wishes(memory_cap=True, compute_cap=True),
            edits=out(MEM, GPU),
        ),
        settings(default_cores_percent=20),
    ),
    case(
        "H7",
        asking({CORES: 30}),
        translated(
            request(FractionAsk(NANO_PER_DEVICE, compute_percent=30)), wishes=Wishes(compute_cap=True), edits=out(CORES)
        ),
    ),
    case(
        "H8",
        asking({GPU: 1, MEM: 3000, CORES: 100}),
        translated(
            request(WholeAsk()),
            notes=(note(NoteCode.EXCLUSIVE, CORES, "100", "a whole device"),),
            edits=out(MEM, CORES),
        ),
    ),
    case("H8-plain", asking({GPU: 2, CORES: 100}), translated(request(WholeAsk(), WholeAsk()), edits=out(CORES))),
    case(
        "H8-default-count",
        asking({CORES: 100}),
        translated(request(WholeAsk()), edits=(*out(CORES), ResourceEdit(C0, GPU, 1))),
    ),
    case(
        "H9",
        asking({GPU: 0, MEM: 3000}),
        translated(GpuRequest(), notes=(note(NoteCode.NO_EFFECT, MEM, "3000"),), edits=out(MEM)),
    ),
    case("H9-percent", asking({GPU: 1, PERCENT: 0}), translated(request(WholeAsk()), edits=out(PERCENT))),
    case(
        "H11",
        asking({GPU: 1, MEM: 3}),
        translated(request(MemoryAsk(3072)), wishes=MEMORY_CAP, edits=out(MEM, GPU)),
        settings(memory_factor=1024),
    ),
    case(
        "H15",
        asking({MEM: 3000, PRIORITY: 1}),
        translated(
            request(MemoryAsk(3000)),
            wishes=MEMORY_CAP,
            edits=out(MEM, PRIORITY),
            env=(EnvEdit(C0, "CUDA_TASK_PRIORITY", "1"),),
        ),
    ),
    case(
        "H16",
        asking({MEM: 3000}, {MEM: 5000}),
        translated(
            GpuRequest(
                (ContainerRequest(C0, (MemoryAsk(3000, seat="a"),)), ContainerRequest(C1, (MemoryAsk(5000, seat="a"),)))
            ),
            alternatives=(
                GpuRequest((ContainerRequest(C0, (MemoryAsk(3000),)), ContainerRequest(C1, (MemoryAsk(5000),)))),
            ),
            wishes=MEMORY_CAP,
            edits=(*out(MEM), *out(MEM, where=C1)),
        ),
    ),
    case(
        "H16-init",
        asking({}, {GPU: 1}, init=[{GPU: 1, PERCENT: 100}]),
        translated(
            GpuRequest((ContainerRequest(C1, (WholeAsk(),)), ContainerRequest(I0, (WholeAsk(),)))),
            edits=out(PERCENT, where=I0),
        ),
    ),
    case(
        "H17",
        asking({GPU: 1}, {GPU: 1, PERCENT: 50}),
        translated(
            GpuRequest((ContainerRequest(C0, (ALL,)), ContainerRequest(C1, (percent(50),)))),
            wishes=MEMORY_CAP,
            edits=(*out(PERCENT, where=C1), *out(GPU), *out(GPU, where=C1)),
        ),
    ),
    case("T3", asking({GPU: 2}), translated(request(WholeAsk(), WholeAsk())), settings(owns_plain_counts=True)),
    case(
        "T3-setting",
        asking({GPU: 2}),
        translated(request(MemoryAsk(4000), MemoryAsk(4000)), wishes=MEMORY_CAP, edits=out(GPU)),
        settings(owns_plain_counts=True, default_mem_mib=4000),
    ),
    case(
        "T5",
        asking({GPU: 1, PERCENT: 50, CORES: 50}),
        translated(
            request(percent(50, compute_percent=50)),
            wishes=Wishes(memory_cap=True, compute_cap=True),
            edits=out(PERCENT, CORES, GPU),
        ),
    ),
]


@pytest.mark.parametrize(("pod", "own", "expected"), SLICES)
def test_resources_say_slices_of_how_many_devices(pod: Pod, own: DialectSettings, expected: Translation) -> None:
    assert hami.speaks(pod, own) or hami.claims(pod, own)
    assert hami.translate(pod, own) == expected


@pytest.mark.parametrize(
    ("pod", "own", "speaks", "claims"),
    [
        pytest.param(asking({GPU: 1}), DEFAULTS, False, False, id="T3-plain"),
        pytest.param(asking({GPU: 1}), settings(owns_plain_counts=True), False, True, id="T3-setting"),
        pytest.param(asking({}, {GPU: 1}), settings(owns_plain_counts=True), False, True, id="T3-second"),
        pytest.param(asking({GPU: 1}, {CORES: "x"}), DEFAULTS, True, False, id="T3-bad-value"),
        pytest.param(asking({}, init=[{PRIORITY: 0}]), DEFAULTS, True, False, id="T3-init"),
        pytest.param(
            asking({"nvidia.com/gpu.memory": 1}), settings(owns_plain_counts=True), False, False, id="T3-other"
        ),
    ],
)
def test_a_plain_count_is_nobodys_but_by_setting(pod: Pod, own: DialectSettings, speaks: bool, claims: bool) -> None:
    assert (hami.speaks(pod, own), hami.claims(pod, own)) == (speaks, claims)


REFUSED = [
    ("H2-off", {MEM: 3000}, Mistake.INCOMPLETE, MEM, "beside nvidia.com/gpu"),
    ("H10-suffix", {MEM: "8Gi"}, Mistake.MALFORMED, MEM, "0 to 2147483647"),
    ("H10-fraction", {MEM: "0.5"}, Mistake.MALFORMED, MEM, "a whole number, the same in limits and requests"),
    ("H10-milli", {GPU: 1, CORES: "500m"}, Mistake.MALFORMED, CORES, "a whole number, the same in limits and requests"),
    ("H10-negative", {GPU: -1, MEM: 5}, Mistake.MALFORMED, GPU, "a whole number, the same in limits and requests"),
    ("H10-text", {GPU: "two", MEM: 5}, Mistake.MALFORMED, GPU, "a whole number, the same in limits and requests"),
    ("H10-percent", {GPU: 1, PERCENT: 101}, Mistake.MALFORMED, PERCENT, "0 to 100"),
    ("H10-cores", {GPU: 1, CORES: 200}, Mistake.MALFORMED, CORES, "0 to 100"),
    ("H10-memory", {GPU: 1, MEM: 2**31}, Mistake.MALFORMED, MEM, "0 to 2147483647"),
    ("H10-devices", {GPU: 257, MEM: 5}, Mistake.TOO_MANY, GPU, "1 to 256"),
    ("H15", {GPU: 1, PRIORITY: 2}, Mistake.MALFORMED, PRIORITY, "0 for high or 1 for low"),
]


@pytest.mark.parametrize(("limits", "code", "name", "allowed"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_a_bad_number_is_refused_naming_container_value_and_what_is_allowed(
    limits: dict[str, Any], code: Mistake, name: str, allowed: str
) -> None:
    refusal = hami.translate(asking(limits), settings(default_gpus=0) if limits == {MEM: 3000} else DEFAULTS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field, refusal.allowed) == (code, f"{name} of container main", allowed)
    assert refusal.message.startswith(refusal.field)


def annotated(annotations: dict[str, str]) -> Pod:
    return asking({GPU: 1, MEM: 3000}, annotations=annotations)


@pytest.mark.parametrize(
    ("pod", "changed"),
    [
        pytest.param(
            annotated({"nvidia.com/use-gputype": "A100, h100", "nvidia.com/nouse-gputype": "MIG,"}),
            {"cards": Cards(products=("a100", "h100"), not_products=("mig",))},
            id="H12-types",
        ),
        pytest.param(
            annotated({"nvidia.com/use-gpuuuid": "GPU-a,GPU-B", "nvidia.com/nouse-gpuuuid": "GPU-c"}),
            {"cards": Cards(uuids=("GPU-a", "GPU-B"), not_uuids=("GPU-c",))},
            id="H12-uuids",
        ),
        pytest.param(
            annotated({"nvidia.com/vgpu-mode": "mps"}), {"wishes": Wishes(memory_cap=True, mode="mps")}, id="H13"
        ),
        pytest.param(annotated({"hami.io/node-scheduler-policy": "spread"}), {"strategy": "spread"}, id="H14-node"),
        pytest.param(
            annotated({"hami.io/gpu-scheduler-policy": "numa,spread", "hami.io/node-scheduler-policy": "binpack"}),
            {
                "strategy": "spread",
                "notes": (
                    Note(NoteCode.APPROXIMATED, "hami.io/gpu-scheduler-policy", "numa", "spread"),
                    Note(NoteCode.APPROXIMATED, "hami.io/node-scheduler-policy", "binpack", "spread"),
                ),
            },
            id="H14-list",
        ),
        pytest.param(
            annotated({"nvidia.com/numa-bind": "true"}),
            {"notes": (Note(NoteCode.APPROXIMATED, "nvidia.com/numa-bind", "true"),)},
            id="H14-numa",
        ),
        pytest.param(annotated({"nvidia.com/numa-bind": "false"}), {}, id="H14-numa-off"),
        pytest.param(annotated({"hami.io/vgpu-devices-allocated": "GPU-x,NVIDIA,1,1:;"}), {}, id="H18-ignored"),
    ],
)
def test_annotations_say_which_cards_and_how(pod: Pod, changed: dict[str, Any]) -> None:
    plain = translated(request(MemoryAsk(3000)), wishes=MEMORY_CAP, edits=out(MEM, GPU))
    assert hami.translate(pod, DEFAULTS) == msgspec.structs.replace(plain, **changed)


USE, NO_USE = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"


@pytest.mark.parametrize(
    ("annotations", "field"),
    [
        pytest.param({USE: "GPU-a", NO_USE: "GPU-b,GPU-a"}, NO_USE, id="the only card"),
        pytest.param({USE: "GPU-a,GPU-b", NO_USE: "GPU-b,GPU-a"}, NO_USE, id="each card"),
        pytest.param({NO_USE: ",".join(f"GPU-{n}" for n in range(501))}, NO_USE, id="more than the scheduler looks at"),
    ],
)
def test_an_exclusion_that_leaves_no_card_in_any_cluster_is_refused(annotations: dict[str, str], field: str) -> None:
    refusal = of_kind(Refusal, hami.translate(annotated(annotations), DEFAULTS))
    assert refusal.field == field
    assert refusal.allowed


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({USE: "GPU-a,GPU-b", NO_USE: "GPU-a"}, id="one card is left"),
        pytest.param({NO_USE: ",".join(f"GPU-{n}" for n in range(500))}, id="as many as are looked at"),
    ],
)
def test_an_exclusion_that_may_leave_a_card_is_for_the_scheduler(annotations: dict[str, str]) -> None:
    assert isinstance(hami.translate(annotated(annotations), DEFAULTS), Translation)


@pytest.mark.parametrize(
    ("pod", "field", "value"),
    [
        pytest.param(annotated({"nvidia.com/use-gputype": ""}), "nvidia.com/use-gputype", "", id="H12-empty"),
        pytest.param(annotated({"nvidia.com/nouse-gpuuuid": " ,"}), "nvidia.com/nouse-gpuuuid", " ,", id="H12-commas"),
        pytest.param(annotated({"nvidia.com/vgpu-mode": "mig,mps"}), "nvidia.com/vgpu-mode", "mig,mps", id="H13-list"),
        pytest.param(
            annotated({"hami.io/gpu-scheduler-policy": "binpack,x"}), "hami.io/gpu-scheduler-policy", "x", id="H14"
        ),
        pytest.param(
            annotated({"hami.io/node-scheduler-policy": "numa"}), "hami.io/node-scheduler-policy", "numa", id="H14-node"
        ),
    ],
)
def test_an_annotation_that_says_nothing_known_is_refused(pod: Pod, field: str, value: str) -> None:
    refusal = of_kind(Refusal, hami.translate(pod, DEFAULTS))
    assert (refusal.code, refusal.field, refusal.value) == (Mistake.MALFORMED, field, value)
    assert refusal.allowed


def test_whole_devices_of_certain_uuids_come_from_the_books() -> None:
    """H12: the vendor's plugin hands out any device, so a whole one that is meant by UUID can't be had from it."""
    pod = asking({GPU: 1, CORES: 100}, annotations={"nvidia.com/use-gpuuuid": "GPU-a"})
    expected = translated(request(ALL), cards=Cards(uuids=("GPU-a",)), edits=out(CORES, GPU))
    assert hami.translate(pod, DEFAULTS) == expected


def test_mig_slices_stand_beside_as_they_are() -> None:
    expected = translated(request(MemoryAsk(5), MigAsk("1g.5gb")), wishes=MEMORY_CAP, edits=out(MEM))
    assert hami.translate(asking({MEM: 5, "nvidia.com/mig-1g.5gb": 1}), DEFAULTS) == expected


@pytest.mark.parametrize(
    ("pod", "given_mib", "env", "devices"),
    [
        pytest.param(
            asking({}, {GPU: 2, MEM: 3000, CORES: 30}),
            [15109, 15109],
            {
                "c1": {
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                    "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
                    "CUDA_DEVICE_SM_LIMIT": "30",
                }
            },
            ";GPU-0,NVIDIA,3000,30:GPU-1,NVIDIA,3000,30:;",
            id="H18",
        ),
        pytest.param(
            asking({PERCENT: 33}),
            [15109],
            {"c0": {"CUDA_DEVICE_MEMORY_LIMIT_0": "4985m", "CUDA_DEVICE_SM_LIMIT": "0"}},
            "GPU-0,NVIDIA,4985,0:;",
            id="T4-floor",
        ),
        pytest.param(
            asking({MEM: 3000}, {MEM: 5000}),
            [15109],
            {
                "c0": {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "0"},
                "c1": {"CUDA_DEVICE_MEMORY_LIMIT_0": "5000m", "CUDA_DEVICE_SM_LIMIT": "0"},
            },
            "GPU-0,NVIDIA,3000,0:;GPU-0,NVIDIA,5000,0:;",
            id="H18-one-card",
        ),
        pytest.param(
            asking({}, init=[{MEM: 3000}]),
            [15109],
            {"i0": {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "0"}},
            "GPU-0,NVIDIA,3000,0:;",
            id="H18-init",
        ),
    ],
)
def test_limits_and_devices_are_written_back(
    pod: Pod, given_mib: list[int], env: dict[str, dict[str, str]], devices: str
) -> None:
    translation = of_kind(Translation, hami.translate(pod, DEFAULTS))
    given = [GivenDevice(f"GPU-{n}", n, mem_mib, 5) for n, mem_mib in enumerate(given_mib)]
    assert hami.written_back(translation, given, node="n1", at_ns=1_705_054_796_999_999_999) == Written(
        env=env,
        annotations={
            "hami.io/vgpu-node": "n1",
            "hami.io/vgpu-time": "1705054796",
            "hami.io/vgpu-devices-to-allocate": devices,
            "hami.io/vgpu-devices-allocated": devices,
        },
    )


def test_of_whole_devices_nothing_is_written_back() -> None:
    translation = of_kind(Translation, hami.translate(asking({GPU: 1, CORES: 100}), DEFAULTS))
    assert hami.written_back(translation, [], node="n1", at_ns=0) == Written()


def test_whole_devices_read_the_same_after_the_edits() -> None:
    translation = of_kind(Translation, hami.translate(asking({CORES: 100}, {GPU: 2, PERCENT: 100}), DEFAULTS))
    counts = {edit.container: edit.count for edit in translation.edits if edit.count}
    edited = asking({GPU: counts[C0]}, {GPU: 2})
    assert kai.translate(edited) == translation.request


QUANTITIES = st.one_of(
    st.integers(-5, 2**70),
    st.floats(),
    st.text(max_size=8),
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,2})?(m|k|M|Mi|Gi|e[0-9])?", fullmatch=True),
    st.integers(0, 110).map(str),
)
LIMITS = st.dictionaries(st.sampled_from([GPU, MEM, PERCENT, CORES, PRIORITY, "nvidia.com/mig-1g.5gb"]), QUANTITIES)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "nvidia.com/use-gputype",
            "nvidia.com/vgpu-mode",
            "nvidia.com/use-gpuuuid",
            "hami.io/gpu-scheduler-policy",
            "nvidia.com/numa-bind",
        ]
    ),
    st.text(max_size=12) | st.sampled_from(["mps", "spread", "numa,binpack", "true"]),
)


@fuzzed
@given(LIMITS, LIMITS, ANNOTATIONS, st.booleans())
def test_whatever_is_written_the_answer_is_sound_or_a_refusal(
    first: dict[str, Any], second: dict[str, Any], annotations: dict[str, str], owns: bool
) -> None:
    pod = asking(first, second, annotations=annotations)
    answer = understood(lambda: hami.translate(pod, settings(owns_plain_counts=owns)))
    if answer is None:
        return
    for asked in (answer.request, *answer.alternatives):
        for container in asked.containers:
            assert len(container.asks) <= 2 * MOST_DEVICES
        for ask in asked.shared:
            amount, most = (ask.mem_mib, 2 * (2**31 - 1)) if isinstance(ask, MemoryAsk) else (ask.nano, NANO_PER_DEVICE)
            assert type(amount) is int
            assert 0 < amount <= most
            assert 0 <= ask.compute_percent < 100
