"""Koordinator: the rows O1-O16 and T1-T5 of docs/reference/dialects.md."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.dialects import koordinator
from gpu.dialects.settings import DialectSettings
from gpu.request import Ask, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import GivenDevice, Mistake, Note, NoteCode, Refusal, ResourceEdit, Translation, Wishes, Written
from tests.fuzzing import fuzzed
from tests.gpu.dialects.pods import C0, C1, I0, asking, container, pod, understood
from tests.values import of_kind
from wire.core import Pod

GPU, SHARED, CORE, MEM, RATIO = (
    f"koordinator.sh/{name}" for name in ("gpu", "gpu.shared", "gpu-core", "gpu-memory", "gpu-memory-ratio")
)
HYPHEN, WHOLE = "koordinator.sh/gpu-shared", "nvidia.com/gpu"
DEFAULTS = DialectSettings()


def request(*asks: Ask) -> GpuRequest:
    return GpuRequest((ContainerRequest(C0, asks),))


def both(first: Ask, second: Ask) -> GpuRequest:
    return GpuRequest((ContainerRequest(C0, (first,)), ContainerRequest(C1, (second,))))


def part(percent: int, core: int = 0, seat: str = "") -> FractionAsk:
    return FractionAsk(percent * 10_000_000, seat=seat, compute_percent=core)


def out(*resources: str, where: ContainerRef = C0) -> tuple[ResourceEdit, ...]:
    return tuple(ResourceEdit(where, name, None) for name in resources)


def to(count: int, where: ContainerRef = C0) -> ResourceEdit:
    return ResourceEdit(where, WHOLE, count)


def case(row: str, asked: Pod, expected: GpuRequest, edits: tuple[ResourceEdit, ...], *notes: Note) -> Any:
    return pytest.param(asked, Translation(dialect="koordinator", request=expected, edits=edits, notes=notes), id=row)


SUMS = [
    case("O1", asking({GPU: 50}), request(part(50, 50)), out(GPU)),
    case("O1-text", asking({GPU: "5"}), request(part(5, 5)), out(GPU)),
    case("O2", asking({GPU: 100}), request(WholeAsk()), (*out(GPU), to(1))),
    case("O2-two", asking({GPU: 200}), request(WholeAsk(), WholeAsk()), (*out(GPU), to(2))),
    case("O3", asking({RATIO: 30}), request(part(30)), out(RATIO)),
    case("O3-two", asking({RATIO: 200}), request(WholeAsk(), WholeAsk()), (*out(RATIO), to(2))),
    case("O4", asking({CORE: 40, RATIO: 30}), request(part(30, 40)), out(CORE, RATIO)),
    case("O4-bytes", asking({CORE: 40, MEM: "8Gi"}), request(MemoryAsk(8192, compute_percent=40)), out(CORE, MEM)),
    case("O4-full", asking({CORE: 40, RATIO: 100}), request(part(100, 40)), out(CORE, RATIO)),
    case("O4-total", asking({CORE: 80, RATIO: 200}), request(part(100, 40), part(100, 40)), out(CORE, RATIO)),
    case("O5", asking({MEM: "8Gi"}), request(MemoryAsk(8192)), out(MEM)),
    case("O5-ceil", asking({MEM: 1}), request(MemoryAsk(1)), out(MEM)),
    case("O5-decimal", asking({MEM: "8G"}), request(MemoryAsk(7630)), out(MEM)),
    case("O6", asking({SHARED: 2, MEM: "8Gi"}), request(MemoryAsk(4096), MemoryAsk(4096)), out(SHARED, MEM)),
    case("O6-rest", asking({SHARED: 3, MEM: "1Gi"}), request(*[MemoryAsk(342)] * 3), out(SHARED, MEM)),
    case("O7", asking({SHARED: 2, RATIO: 60}), request(part(30), part(30)), out(SHARED, RATIO)),
    case("O7-core", asking({SHARED: 2, RATIO: 60, CORE: 80}), request(*[part(30, 40)] * 2), out(SHARED, CORE, RATIO)),
    case("O7-whole", asking({SHARED: 2, RATIO: 200}), request(*[WholeAsk()] * 2), (*out(SHARED, RATIO), to(2))),
    case(
        "O8",
        asking({HYPHEN: 2, RATIO: 60}),
        request(part(30), part(30)),
        out(HYPHEN, RATIO),
        Note(NoteCode.MORE_THAN_ORIGIN, f"{HYPHEN} of container main", "2", SHARED),
    ),
    case(
        "O12",
        asking({GPU: 30}, {GPU: 40}),
        both(part(30, 30, "a"), part(40, 40, "a")),
        (*out(GPU), *out(GPU, where=C1)),
    ),
    case(
        "O12-full",
        asking({GPU: 50}, {GPU: 50}),
        both(part(50, 50, "a"), part(50, 50, "a")),
        (*out(GPU), *out(GPU, where=C1)),
    ),
    case(
        "O12-whole",
        asking({GPU: 100}, {GPU: 200}),
        GpuRequest((ContainerRequest(C0, (WholeAsk(),)), ContainerRequest(C1, (WholeAsk(), WholeAsk())))),
        (*out(GPU), *out(GPU, where=C1), to(1), to(2, C1)),
    ),
    case(
        "O12-own",
        asking({SHARED: 1, MEM: "4Gi"}, {SHARED: 1, MEM: "4Gi"}),
        both(MemoryAsk(4096), MemoryAsk(4096)),
        (*out(SHARED, MEM), *out(SHARED, MEM, where=C1)),
    ),
    case(
        "O12-init",
        asking({GPU: 30}, init=[{GPU: 80}]),
        GpuRequest((ContainerRequest(C0, (part(30, 30, "a"),)), ContainerRequest(I0, (part(80, 80, "a"),)))),
        (*out(GPU), *out(GPU, where=I0)),
    ),
    case(
        "O12-init-whole",
        asking({GPU: 100}, init=[{GPU: 100}]),
        GpuRequest((ContainerRequest(C0, (WholeAsk(),)), ContainerRequest(I0, (WholeAsk(),)))),
        (*out(GPU), *out(GPU, where=I0), to(1), to(1, I0)),
    ),
    case("O15", asking({GPU: 0, MEM: 0}), GpuRequest(), out(GPU, MEM)),
    case("O15-beside", asking({GPU: 50, CORE: 0}), request(part(50, 50)), out(GPU, CORE)),
]


@pytest.mark.parametrize(("asked", "expected"), SUMS)
def test_totals_are_divided_among_devices(asked: Pod, expected: Translation) -> None:
    """T1: 8Gi over two devices are 4Gi of each."""
    assert koordinator.speaks(asked, DEFAULTS)
    assert koordinator.translate(asked, DEFAULTS) == expected


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu.shared", "nvidia.com/gpu", "koordinator.sh/rdma", "koordinator.sh/fpga"]
)
def test_names_of_others_are_not_koordinators(name: str) -> None:
    """O9, T2: NVIDIA's renamed time slice has the same last word; RDMA and FPGA are no GPUs."""
    assert not koordinator.speaks(asking({name: 1}), DEFAULTS)


UNIT = "invalid resource unit {}: {}"
TOGETHER = "invalid resource device requests: [{}]"
REFUSED = [
    ("O10-core", [{CORE: 50}], Mistake.INCOMPLETE, CORE, TOGETHER.format(CORE)),
    ("O10-shared", [{SHARED: 2}], Mistake.INCOMPLETE, SHARED, TOGETHER.format(SHARED)),
    ("O10-both", [{MEM: 1, RATIO: 50}], Mistake.CONFLICTING, MEM, TOGETHER.format(f"{MEM} {RATIO}")),
    ("O10-gpu", [{GPU: 50, CORE: 50}], Mistake.CONFLICTING, GPU, TOGETHER.format(f"{GPU} {CORE}")),
    (
        "O10-foreign",
        [{RATIO: 50, "huawei.com/npu-core": 1}],
        Mistake.CONFLICTING,
        RATIO,
        TOGETHER.format(f"huawei.com/npu-core {RATIO}"),
    ),
    ("O10-sum", [{MEM: 1}, {RATIO: 50}], Mistake.CONFLICTING, MEM, TOGETHER.format(f"{MEM} {RATIO}")),
    ("O10-whole", [{GPU: 50, WHOLE: 1}], Mistake.CONFLICTING, WHOLE, f"cannot have both {GPU} and {WHOLE} in a pod"),
    ("O8-both", [{SHARED: 2, HYPHEN: 1, RATIO: 2}], Mistake.CONFLICTING, SHARED, TOGETHER.format(f"{HYPHEN} {SHARED}")),
    ("O11-gpu", [{GPU: 150}], Mistake.MALFORMED, GPU, UNIT.format(GPU, 150)),
    ("O11-sum", [{GPU: 60}, {GPU: 70}], Mistake.MALFORMED, GPU, UNIT.format(GPU, 130)),
    ("O11-ratio", [{RATIO: 250}], Mistake.MALFORMED, RATIO, UNIT.format(RATIO, 250)),
    ("O11-core", [{CORE: 150, RATIO: 200}], Mistake.MALFORMED, CORE, UNIT.format(CORE, 150)),
    ("O11-core-each", [{CORE: 200, RATIO: 100}], Mistake.MALFORMED, CORE, UNIT.format(CORE, 200)),
    ("O11-core-bytes", [{CORE: 200, MEM: "8Gi"}], Mistake.MALFORMED, CORE, UNIT.format(CORE, 200)),
    ("O11-core-rest", [{CORE: 50, RATIO: 300}], Mistake.MALFORMED, CORE, UNIT.format(CORE, 50)),
    ("O11-shared-rest", [{SHARED: 2, RATIO: 61}], Mistake.MALFORMED, RATIO, UNIT.format(RATIO, 61)),
    ("O11-shared-each", [{SHARED: 2, RATIO: 240}], Mistake.MALFORMED, RATIO, UNIT.format(RATIO, 240)),
    ("O11-shared-core", [{SHARED: 2, MEM: 9, CORE: 300}], Mistake.MALFORMED, CORE, UNIT.format(CORE, 300)),
    ("O11-shared-core-little", [{SHARED: 2, MEM: 9, CORE: 202}], Mistake.MALFORMED, CORE, UNIT.format(CORE, 202)),
    ("O11-half", [{GPU: "0.5"}], Mistake.MALFORMED, GPU, f"{GPU} of container main must be an integer, it is '0.5'"),
    (
        "O11-many",
        [{GPU: 25_700}],
        Mistake.TOO_MANY,
        GPU,
        f"{GPU} of container main 257 is too large: a container can be given at most 256 devices",
    ),
    (
        "O12-no-memory",
        [{CORE: 50}, {MEM: "4Gi"}],
        Mistake.INCOMPLETE,
        CORE,
        "container main shares a device with others, but says nothing of its memory",
    ),
    (
        "O12-uneven",
        [{SHARED: 2, MEM: "8Gi"}, {MEM: "4Gi"}],
        Mistake.CONFLICTING,
        SHARED,
        "the containers ask for 2 devices in sum, but not for these one by one",
    ),
]


@pytest.mark.parametrize(("limits", "code", "name", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_what_does_not_stand_together_is_refused_in_the_origins_words(
    limits: list[dict[str, Any]], code: Mistake, name: str, message: str
) -> None:
    refusal = of_kind(Refusal, koordinator.translate(asking(*limits), DEFAULTS))
    assert (refusal.code, refusal.field, refusal.message) == (code, f"{name} of container main", message)
    assert refusal.allowed


@pytest.mark.parametrize(
    ("limits", "label", "wishes"),
    [
        pytest.param({GPU: 50}, "HAMi-core", Wishes(memory_cap=True, compute_cap=True, mode="hami-core"), id="O13"),
        pytest.param(
            {RATIO: 30, CORE: 1}, "hami-core", Wishes(memory_cap=True, compute_cap=True, mode="hami-core"), id="O13-1"
        ),
        pytest.param({MEM: 50}, "hami-core", Wishes(memory_cap=True, mode="hami-core"), id="O13-lower"),
        pytest.param({GPU: 100}, "hami-core", Wishes(mode="hami-core"), id="O13-whole"),
        pytest.param({GPU: 50}, None, Wishes(), id="T5-accounting"),
    ],
)
def test_isolation_is_wished_by_label(limits: dict[str, Any], label: str | None, wishes: Wishes) -> None:
    labels = {"koordinator.sh/gpu-isolation-provider": label} if label else None
    found = of_kind(Translation, koordinator.translate(asking(limits, labels=labels), DEFAULTS))
    assert found.wishes == wishes


def test_another_isolation_is_refused() -> None:
    """O13."""
    refusal = koordinator.translate(asking({GPU: 50}, labels={"koordinator.sh/gpu-isolation-provider": "x"}), DEFAULTS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.value, refusal.allowed) == (Mistake.MALFORMED, "x", "one of HAMi-core, hami-core")


def test_hints_of_placement_are_noted() -> None:
    """O14."""
    hint = {"scheduling.koordinator.sh/gpu-partition-spec": '{"allocatePolicy":"Restricted"}'}
    found = of_kind(Translation, koordinator.translate(asking({GPU: 200}, annotations=hint), DEFAULTS))
    assert found.notes == (
        Note(NoteCode.APPROXIMATED, "scheduling.koordinator.sh/gpu-partition-spec", '{"allocatePolicy":"Restricted"}'),
    )


def allocated(*devices: tuple[int, dict[str, str]]) -> dict[str, Any]:
    listed = [
        {"minor": minor, "resources": {f"koordinator.sh/{name}": text for name, text in resources.items()}}
        for minor, resources in devices
    ]
    return {"gpu": listed}


@pytest.mark.parametrize(
    ("asked", "isolated", "expected", "env"),
    [
        pytest.param(
            asking({GPU: 50}),
            False,
            allocated((3, {"gpu-core": "50", "gpu-memory": "8Gi", "gpu-memory-ratio": "50"})),
            {},
            id="O16",
        ),
        pytest.param(
            asking({SHARED: 2, MEM: "6Gi", CORE: 80}),
            True,
            allocated(
                (3, {"gpu-core": "40", "gpu-memory": "3Gi", "gpu-memory-ratio": "18"}),
                (4, {"gpu-core": "40", "gpu-memory": "3Gi", "gpu-memory-ratio": "18"}),
            ),
            {"c0": {"CUDA_DEVICE_MEMORY_LIMIT": "3221225472", "CUDA_DEVICE_SM_LIMIT": "40"}},
            id="O16-two",
        ),
        pytest.param(
            asking({GPU: 30}, {GPU: 40}),
            True,
            allocated((3, {"gpu-core": "70", "gpu-memory": "11468Mi", "gpu-memory-ratio": "70"})),
            {
                "c0": {"CUDA_DEVICE_MEMORY_LIMIT": str(4915 * 2**20), "CUDA_DEVICE_SM_LIMIT": "30"},
                "c1": {"CUDA_DEVICE_MEMORY_LIMIT": str(6553 * 2**20), "CUDA_DEVICE_SM_LIMIT": "40"},
            },
            id="O16-common",
        ),
        pytest.param(
            asking({GPU: 30}, init=[{GPU: 80}]),
            False,
            allocated((3, {"gpu-core": "80", "gpu-memory": "13107Mi", "gpu-memory-ratio": "80"})),
            {},
            id="O16-init",
        ),
        pytest.param(
            asking({CORE: 40, RATIO: 100}),
            True,
            allocated((3, {"gpu-core": "40", "gpu-memory": "16Gi", "gpu-memory-ratio": "100"})),
            {},
            id="O16-full",
        ),
    ],
)
def test_the_allocation_is_written_per_device(
    asked: Pod, isolated: bool, expected: dict[str, Any], env: dict[str, dict[str, str]]
) -> None:
    if isolated:
        labels = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
        asked = msgspec.structs.replace(asked, metadata=msgspec.structs.replace(asked.metadata, labels=labels))
    found = of_kind(Translation, koordinator.translate(asked, DEFAULTS))
    given = [GivenDevice(f"GPU-{n}", 3 + n, 16384, 1) for n in range(len(found.request.shared))]
    written = koordinator.written_back(found, given)
    assert json.loads(written.annotations["scheduling.koordinator.sh/device-allocated"]) == expected
    assert written == Written(env=env, annotations=written.annotations)


def test_of_whole_devices_nothing_is_written_back() -> None:
    found = of_kind(Translation, koordinator.translate(asking({GPU: 100}), DEFAULTS))
    assert koordinator.written_back(found, []) == Written()


def test_sidecars_count_beside_the_others() -> None:
    """O12: an init container that goes on running is added, one that ends is not."""
    init = container("load", {GPU: 60}, restartPolicy="Always")
    refusal = of_kind(Refusal, koordinator.translate(pod(container("main", {GPU: 50}), init=[init]), DEFAULTS))
    assert refusal.message == UNIT.format(GPU, 110)


def test_a_sidecar_with_a_device_of_its_own_is_no_container_beside_the_others() -> None:
    """O12: of init containers the origin does not say which device they take."""
    own = {SHARED: 1, MEM: "4Gi"}
    refusal = koordinator.translate(
        pod(container("main", own), init=[container("load", own, restartPolicy="Always")]), DEFAULTS
    )
    assert isinstance(refusal, Refusal)
    assert refusal.code is Mistake.CONFLICTING


QUANTITIES = st.one_of(
    st.integers(-5, 2**70),
    st.floats(),
    st.text(max_size=8),
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,2})?(m|k|M|Mi|Gi|e[0-9])?", fullmatch=True),
    st.integers(0, 12).map(lambda tens: tens * 10),
)
LIMITS = st.dictionaries(st.sampled_from([GPU, SHARED, HYPHEN, CORE, MEM, RATIO, WHOLE]), QUANTITIES, max_size=4)


@fuzzed
@given(LIMITS, LIMITS, LIMITS)
def test_whatever_is_written_the_answer_is_sound_or_a_refusal(
    first: dict[str, Any], second: dict[str, Any], init: dict[str, Any]
) -> None:
    asked = asking(first, second, init=[init])
    if not koordinator.speaks(asked, DEFAULTS):
        return
    answer = understood(lambda: koordinator.translate(asked, DEFAULTS))
    if answer is None:
        return
    for ask in answer.request.shared:
        amount = ask.mem_mib if isinstance(ask, MemoryAsk) else ask.nano
        assert type(amount) is int
        assert amount > 0
        assert isinstance(ask, MemoryAsk) or amount <= NANO_PER_DEVICE
        assert 0 <= ask.compute_percent <= 100
