from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import record
from gpu.dialects import aliyun, hami, kai, metagpu
from gpu.dialects.settings import (
    AliyunSettings,
    ClearmlSettings,
    DialectSettings,
    HamiSettings,
    MetagpuSettings,
    ReplicasSettings,
)
from gpu.request import NO_GPU, Ask, FractionAsk, GpuRequest, MemoryAsk, MigAsk, WholeAsk, charge_nano
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine
from gpu.translate.asked import needs_record
from gpu.translation import GivenDevice, Mistake, Note, NoteCode, Refusal, ResourceEdit, Translation, Wishes, Written
from tests.fuzzing import fuzzed
from tests.gpu.dialects.pods import C0, C1, Raw, asking, container, pod, understood
from tests.gpu.dialects.rows import Row, asks, edited, holds, parametrized
from tests.values import of_kind
from wire.core import Pod

GPU, MEM, METAGPU, SHARED = "nvidia.com/gpu", "aliyun.com/gpu-mem", "cnvrg.io/metagpu", "nvidia.com/sharedgpu"
LABEL = "clearml-injector/fraction"
DEFAULTS = DialectSettings()
HALF = FractionAsk(NANO_PER_DEVICE // 2)
CAP = Wishes(memory_cap=True)


def labelled(text: str, *limits: Raw, **more: Any) -> Pod:
    return asking(*(limits or ({},)), labels={LABEL: text}, **more)


def made(dialect: str, *asked: Ask, **more: Any) -> Translation:
    return Translation(dialect=dialect, request=asks((C0, asked)) if asked else NO_GPU, **more)


def twice(field: str, value: str, by: str) -> Note:
    return Note(NoteCode.SAID_TWICE, field, value, by)


def gone(*resources: str) -> tuple[ResourceEdit, ...]:
    return tuple(ResourceEdit(C0, name, None) for name in resources)


def replicas(**chosen: Any) -> DialectSettings:
    return DialectSettings(replicas=ReplicasSettings(**chosen))


DROPPED = Note(NoteCode.COUNT_DROPPED, "nvidia.com/gpu of container main", "4", "0.5")
CONFLICT = Mistake.CONFLICTING
ONE_FIELD = "nvidia.com/gpu of container main"

# Dialect, request and notes of what is made of a pod; or the refusal.
ROWS = [
    Row("X1 a label wins over a count", labelled("0.5", {GPU: 4}), made("clearml", HALF, notes=(DROPPED,))),
    Row(
        "X1 also where counts are replicas",
        labelled("0.5", {GPU: 4}),
        made("clearml", HALF, notes=(DROPPED,)),
        replicas(time_slices=8),
    ),
    Row(
        "X1 also where counts are ClearML's or HAMi's",
        labelled("0.5", {GPU: 4}),
        made("clearml", HALF, notes=(DROPPED,)),
        DialectSettings(clearml=ClearmlSettings(legacy_replicas=8), hami=HamiSettings(owns_plain_counts=True)),
    ),
    Row(
        "X2 a share of KAI's beside a count",
        asking({GPU: 1}, annotations={"gpu-fraction": "0.5"}),
        (CONFLICT, "gpu-fraction"),
    ),
    Row(
        "X2 also where counts are replicas",
        asking({GPU: 1}, annotations={"gpu-memory": "500"}),
        (CONFLICT, "gpu-memory"),
        replicas(time_slices=8),
    ),
    Row("X3 label and memory", labelled("0.5", {MEM: 5}), (CONFLICT, "aliyun.com/gpu-mem of container main")),
    Row(
        "X3 units and a fraction",
        asking({METAGPU: 30}, annotations={"gpu-fraction": "0.4"}),
        (CONFLICT, "gpu-fraction"),
    ),
    Row(
        "X3 units and replicas",
        asking({METAGPU: 30, SHARED: 1}),
        (CONFLICT, "nvidia.com/sharedgpu of container main"),
        replicas(entries=("gpu:sharedgpu:4",)),
    ),
    Row(
        "X3 HAMi and Volcano",
        asking({"nvidia.com/gpumem": 500, "volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 700}),
        (CONFLICT, "volcano.sh/vgpu-memory of container main"),
    ),
    Row(
        "X3 Koordinator and KAI",
        asking({"koordinator.sh/gpu": 50}, annotations={"gpu-fraction": "0.4"}),
        (CONFLICT, "gpu-fraction"),
    ),
    Row(
        "X3 another container",
        asking({}, {METAGPU: 50}, labels={LABEL: "0.5"}),
        (CONFLICT, "cnvrg.io/metagpu of container side"),
    ),
    Row("X3 memory and whole GPUs", asking({MEM: 5}, {GPU: 1}), (CONFLICT, "nvidia.com/gpu of container side")),
    Row("X3 one is malformed", labelled("0.3", {METAGPU: 30}), (Mistake.MALFORMED, f"label {LABEL}")),
    Row(
        "X3 the other is malformed",
        labelled("0.5", {METAGPU: "x"}),
        (Mistake.MALFORMED, "cnvrg.io/metagpu of container main"),
    ),
    Row(
        "X3 the same share",
        asking({METAGPU: 50}, annotations={"gpu-fraction": "0.5"}),
        made("metagpu", HALF, notes=(twice("gpu-fraction", "0.5", "metagpu"),)),
    ),
    Row(
        "X3 the same memory",
        asking({MEM: 5}, annotations={"gpu-memory": "5120"}),
        made("aliyun", MemoryAsk(5120), notes=(twice("gpu-memory", "5120", "aliyun"),)),
    ),
    Row(
        "X3 the same whole GPU",
        labelled("1", {METAGPU: 100, GPU: 1}),
        made("clearml", WholeAsk(), notes=(twice("cnvrg.io/metagpu of container main", "100", "clearml"),)),
    ),
    Row(
        "X3 three that say the same",
        labelled("0.5", {METAGPU: 50}, annotations={"gpu-fraction": "5e-1"}),
        made(
            "clearml",
            HALF,
            notes=(
                twice("cnvrg.io/metagpu of container main", "50", "clearml"),
                twice("gpu-fraction", "5e-1", "clearml"),
            ),
        ),
    ),
    Row(
        "X3 two modes",
        asking(
            {"nvidia.com/gpu.shared": 1, "nvidia.com/gpumem-percentage": 25},
            annotations={"nvidia.com/vgpu-mode": "mps"},
        ),
        (CONFLICT, "nvidia.com/gpumem-percentage of container main"),
        replicas(time_slices=4),
    ),
    Row(
        "X3 one mode",
        asking({"nvidia.com/gpu.shared": 1, "nvidia.com/gpumem-percentage": 25}),
        made(
            "replicas",
            FractionAsk(250_000_000),
            notes=(twice("nvidia.com/gpumem-percentage of container main", "25", "replicas"),),
        ),
        replicas(time_slices=4),
    ),
    Row(
        "X3 one that only keeps accounts beside one that caps",
        asking(
            {
                "koordinator.sh/gpu-core": 40,
                "koordinator.sh/gpu-memory-ratio": 30,
                "nvidia.com/gpumem-percentage": 30,
                "nvidia.com/gpucores": 40,
            }
        ),
        made(
            "hami",
            FractionAsk(300_000_000, compute_percent=40),
            notes=(twice("koordinator.sh/gpu-core of container main", "40", "hami"),),
        ),
    ),
    Row(
        "X4 the same number",
        labelled("0.500", annotations={"gpu-fraction": "0.5"}),
        made("clearml", HALF, notes=(twice("gpu-fraction", "0.5", "clearml"),)),
    ),
    Row("X4 another number", labelled("0.5", annotations={"gpu-fraction": "0.25"}), (CONFLICT, "gpu-fraction")),
    Row(
        "X4 a number that is rounded up",
        labelled("0.3", annotations={"gpu-fraction": "0.3"}),
        (CONFLICT, "gpu-fraction"),
        DialectSettings(clearml=ClearmlSettings(round_up=True)),
    ),
    Row(
        "X5 replicas in several containers",
        asking({SHARED: 1}, {SHARED: 1}),
        Translation(
            dialect="replicas", request=asks((C0, [FractionAsk(250_000_000)]), (C1, [FractionAsk(250_000_000)]))
        ),
        replicas(entries=("gpu:sharedgpu:4",)),
    ),
    Row(
        "X5 Aliyun's on one card",
        asking({MEM: 2}, {MEM: 3}),
        Translation(
            dialect="aliyun", request=asks((C0, [MemoryAsk(2048, seat="a")]), (C1, [MemoryAsk(3072, seat="a")]))
        ),
    ),
    Row(
        "X6 strict waits instead (I3)",
        asking({SHARED: 2}),
        made("replicas", *[FractionAsk(250_000_000)] * 2),
        DialectSettings(strict=True, replicas=ReplicasSettings(entries=("gpu:sharedgpu:4",))),
    ),
    Row(
        "X6 strict waits instead (M5)",
        asking({METAGPU: 50}),
        made("metagpu", HALF),
        DialectSettings(strict=True, metagpu=MetagpuSettings(allow_span=True)),
    ),
    Row(
        "X6 nothing of KAI's memory is rounded (K3)",
        asking({}, annotations={"gpu-memory": "2000"}),
        made("kai", MemoryAsk(2000)),
    ),
    Row(
        "X6 weakened with a note",
        asking({SHARED: 2}),
        made(
            "replicas",
            *[FractionAsk(250_000_000)] * 2,
            notes=(Note(NoteCode.WEAKENED, "nvidia.com/sharedgpu of container main", "2", "1 to 2 devices"),),
        ),
        replicas(entries=("gpu:sharedgpu:4",)),
    ),
    Row(
        "C9 eight slices where nobody else speaks",
        asking({GPU: 8}),
        made("clearml", WholeAsk()),
        DialectSettings(clearml=ClearmlSettings(legacy_replicas=8)),
    ),
    Row("C12 real MIG", asking({"nvidia.com/mig-1g.10gb": 2}), made("plugin", *[MigAsk("1g.10gb")] * 2)),
    Row(
        "K13 a label of nodes as an annotation",
        asking({GPU: 1}, annotations={"nvidia.com/gpu.memory": "8000Mi"}),
        made("plugin", WholeAsk(), notes=(Note(NoteCode.NO_EFFECT, "nvidia.com/gpu.memory", "8000Mi"),)),
    ),
    Row("K8 MPS without a share", asking({}, annotations={"mps": "true"}), (Mistake.INCOMPLETE, "mps")),
    Row("N1 a whole device", asking({GPU: 1}), made("plugin", WholeAsk())),
    Row(
        "N2 two in each of two containers",
        asking({GPU: 2}, {GPU: 2}),
        Translation(dialect="plugin", request=asks((C0, [WholeAsk()] * 2), (C1, [WholeAsk()] * 2))),
    ),
    *(Row(f"N6 {amount}", asking({GPU: amount}), (Mistake.MALFORMED, ONE_FIELD)) for amount in ("0.5", "500m")),
    Row("N7 nothing at all (void remains)", asking({"cpu": 1}), made("plugin")),
    Row(
        "T3 HAMi's words say what a count is",
        asking({GPU: 1, "nvidia.com/gpumem": 3000}),
        made("hami", MemoryAsk(3000)),
        replicas(time_slices=4),
    ),
    Row(
        "two owners of plain counts",
        asking({GPU: 8}),
        (CONFLICT, ONE_FIELD),
        DialectSettings(clearml=ClearmlSettings(legacy_replicas=8), replicas=ReplicasSettings(time_slices=4)),
    ),
    *(
        Row(
            f"sharing is off: {dialect}",
            asked,
            (Mistake.DISABLED, field),
            msgspec.structs.replace(chosen, sharing=False),
        )
        for dialect, asked, field, chosen in [
            ("clearml", labelled("0.5"), f"label {LABEL}", DEFAULTS),
            ("aliyun", asking({MEM: 5}), "aliyun.com/gpu-mem of container main", DEFAULTS),
            ("metagpu", asking({METAGPU: 5}), "cnvrg.io/metagpu of container main", DEFAULTS),
            ("kai", asking({}, annotations={"gpu-fraction": "0.5"}), "gpu-fraction", DEFAULTS),
            ("time-slicing", asking({GPU: 1}), ONE_FIELD, replicas(time_slices=4)),
            (
                "slices",
                asking({"nvidia.com/small": 1}),
                "nvidia.com/small of container main",
                replicas(entries=("mig-3g.20gb:small:2",)),
            ),
        ]
    ),
    Row(
        "sharing is off: whole GPUs",
        labelled("2"),
        made("clearml", WholeAsk(), WholeAsk()),
        DialectSettings(sharing=False),
    ),
]


@parametrized(ROWS)
def test_a_rule_of_the_table(row: Row) -> None:
    def translate(asked: Pod, settings: DialectSettings) -> Translation | Refusal:
        answer = combine.translate(asked, settings)
        if isinstance(answer, Refusal):
            return answer
        return Translation(dialect=answer.dialect, request=answer.request, notes=answer.notes)

    holds(row, translate)


def test_x3_the_refusal_names_both_forms() -> None:
    refusal = of_kind(Refusal, combine.translate(labelled("0.5", {MEM: 5}), DEFAULTS))
    assert refusal.value == "5"
    for text in (refusal.message, refusal.allowed):
        assert "label clearml-injector/fraction" in text
        assert "aliyun.com/gpu-mem of container main" in text


def test_x3_what_both_change_and_wish_is_kept() -> None:
    answer = of_kind(Translation, combine.translate(labelled("0.5", {METAGPU: 50}), DEFAULTS))
    assert answer.edits == gone(METAGPU)
    assert answer.wishes == CAP
    assert [edit.value for edit in answer.env] == ["0.500"]


@pytest.mark.parametrize(
    ("limits", "annotations", "wishes", "strategy"),
    [
        ({"nvidia.com/gpumem": 5120}, {}, CAP, ""),
        ({"nvidia.com/gpumem": 5120}, {"nvidia.com/vgpu-mode": "mps"}, Wishes(memory_cap=True, mode="mps"), ""),
        ({"nvidia.com/gpumem": 5120}, {"hami.io/gpu-scheduler-policy": "spread"}, CAP, "spread"),
        ({"volcano.sh/vgpu-memory": 5120}, {"volcano.sh/vgpu-podgroup-policy": "spread"}, CAP, "spread"),
        ({MEM: 5}, {}, Wishes(), "binpack"),
    ],
)
def test_x3_what_is_said_beside_kais_annotations_is_recorded(
    limits: Raw, annotations: dict[str, str], wishes: Wishes, strategy: str
) -> None:
    """KAI's own pods have no record: what the other system wished was lost where KAI's words counted as the first."""
    answer = combine.translate(asking(limits, annotations={"gpu-memory": "5120", **annotations}), DEFAULTS)
    assert isinstance(answer, Translation)
    assert needs_record(answer)
    assert (answer.wishes, answer.strategy) == (wishes, strategy)
    assert ("gpu-memory", NoteCode.SAID_TWICE) in [(note.field, note.code) for note in answer.notes]


def test_x3_of_two_placements_the_first_counts_and_the_other_is_noted() -> None:
    asked = asking({MEM: 5, "nvidia.com/gpumem": 5120}, annotations={"hami.io/gpu-scheduler-policy": "spread"})
    answer = of_kind(Translation, combine.translate(asked, DEFAULTS))
    assert answer.strategy == "binpack"
    assert Note(NoteCode.APPROXIMATED, "placement by hami", "spread", "binpack") in answer.notes


TYPE, ISOLATION = "nvidia.com/use-gputype", "koordinator.sh/gpu-isolation-provider"


@pytest.mark.parametrize(
    ("asked", "unread"),
    [
        (asking({GPU: 1}, annotations={TYPE: "A100", "nvidia.com/vgpu-mode": "mps"}), [TYPE, "nvidia.com/vgpu-mode"]),
        (asking({}, annotations={TYPE: "A100", "gpu-fraction": "0.5"}), [TYPE]),
        (asking({MEM: 5}, annotations={"volcano.sh/vgpu-mode": "mps"}), ["volcano.sh/vgpu-mode"]),
        (asking({MEM: 5}, labels={ISOLATION: "HAMi-core"}), [f"label {ISOLATION}"]),
        (asking({"nvidia.com/gpumem": 5}, annotations={TYPE: "A100"}), []),
        (asking({"volcano.sh/vgpu-memory": 5}, annotations={TYPE: "A100"}), []),
        (asking({"koordinator.sh/gpu": 50}, labels={ISOLATION: "HAMi-core"}), []),
        (asking({}, annotations={TYPE: "A100"}), []),
    ],
)
def test_words_of_a_system_that_does_not_speak_in_the_pod_are_noted(asked: Pod, unread: list[str]) -> None:
    answer = of_kind(Translation, combine.translate(asked, DEFAULTS))
    assert sorted(note.field for note in answer.notes if note.code is NoteCode.NO_EFFECT) == sorted(unread)


@pytest.mark.parametrize(("mps", "mode"), [("true", "mps"), ("false", "")])
def test_mps_is_a_wish(mps: str, mode: str) -> None:
    answer = combine.translate(asking({}, annotations={"gpu-fraction": "0.5", "mps": mps}), DEFAULTS)
    assert isinstance(answer, Translation)
    assert answer.wishes == Wishes(mode=mode)


def test_x6_strict_refuses_a_variable_that_shows_other_devices() -> None:
    asked = pod(container("main", {MEM: 5}, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]))
    kept = combine.translate(asked, DEFAULTS)
    refused = combine.translate(asked, DialectSettings(strict=True))
    assert isinstance(kept, Translation)
    assert [note.code for note in kept.notes] == [NoteCode.VARIABLE_OVERRIDDEN]
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.field) == (CONFLICT, "env NVIDIA_VISIBLE_DEVICES of container main")


GIVEN = (GivenDevice("GPU-a", 2, 15109, 500_000_000),)


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        (labelled("0.5"), Written()),
        (asking({GPU: 1}), Written()),
        (asking({}, annotations={"gpu-fraction": "0.5"}), Written()),
        (asking({MEM: 5}), aliyun.written_back(made("aliyun", MemoryAsk(5120)), GIVEN, at_ns=7)),
        (asking({METAGPU: 50}), metagpu.written_back(made("metagpu", HALF), GIVEN)),
        (asking({"nvidia.com/gpumem": 5}), hami.written_back(made("hami", MemoryAsk(5)), GIVEN, node="n", at_ns=7)),
    ],
)
def test_each_dialect_writes_back_its_own(asked: Pod, written: Written) -> None:
    answer = of_kind(Translation, combine.translate(asked, DEFAULTS))
    devices = GIVEN if answer.request.is_shared else ()
    assert combine.written_back(answer, devices, node="n", at_ns=7) == written


def test_of_five_dialects_on_one_card_three_fit() -> None:
    card_mib = 15109
    pods = [
        labelled("0.25"),
        asking({MEM: 5}),
        asking({METAGPU: 30}),
        asking({}, annotations={"gpu-memory": "4096"}),
        asking({"nvidia.com/gpu-mem-gb": 5}),
    ]
    charges = {}
    for asked in pods:
        answer = of_kind(Translation, combine.translate(asked, replicas(entries=("gpu:gpu-mem-gb:-1",))))
        [ask] = answer.request.shared
        charges[answer.dialect] = charge_nano(ask, card_mib)
    assert charges == {
        "clearml": 250_000_000,
        "aliyun": 5120 * NANO_PER_DEVICE // card_mib,
        "metagpu": 300_000_000,
        "kai": 4096 * NANO_PER_DEVICE // card_mib,
        "replicas": 5000 * NANO_PER_DEVICE // card_mib,
    }
    free, placed = NANO_PER_DEVICE, []
    for dialect, nano in sorted(charges.items(), key=lambda pair: -(pair[1] or 0)):
        if nano is not None and nano <= free:
            free -= nano
            placed.append(dialect)
    assert placed == ["aliyun", "replicas", "metagpu"]


NUMBERS = st.one_of(
    st.text(max_size=12),
    st.text("0123456789.e-", max_size=8),
    st.sampled_from(["0.5", "0.25", "2", "500", "true", "main"]),
)
KAI_ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "gpu-fraction",
            "gpu-memory",
            "gpu-fraction-num-devices",
            "gpu-fraction-container-name",
            "gpu-fraction-container-type",
            "mps",
            "nvidia.com/gpu.memory",
        ]
    ),
    NUMBERS,
)
PLAIN_LIMITS: st.SearchStrategy[Raw] = st.dictionaries(
    st.sampled_from([GPU, "nvidia.com/mig-1g.10gb", "cpu"]), st.integers(0, 3) | st.text("0123456789.m-", max_size=4)
)


@fuzzed
@given(
    KAI_ANNOTATIONS, st.lists(PLAIN_LIMITS, min_size=1, max_size=2), st.lists(PLAIN_LIMITS, max_size=1), st.booleans()
)
def test_a_pod_of_kai_is_read_as_kai_reads_it(
    annotations: dict[str, str], limits: list[Raw], init: list[Raw], sharing: bool
) -> None:
    asked = asking(*limits, init=init, annotations=annotations)

    answer = combine.translate(asked, DialectSettings(sharing=sharing))

    expected = kai.translate(asked, sharing=sharing)
    if isinstance(answer, Refusal):
        assert answer == expected
    else:
        assert answer.request == expected
        assert answer.alternatives == ()
        assert answer.edits == ()
        is_of_kai = {"gpu-fraction", "gpu-memory"} & annotations.keys()
        assert answer.dialect == ("kai" if is_of_kai else "plugin")


def amounts_of(request: GpuRequest) -> list[Any]:
    """All numbers of a request."""
    asked = [ask for asking_container in request.containers for ask in asking_container.asks]
    return [number for ask in asked for number in msgspec.structs.astuple(ask) if not isinstance(number, str)]


ALL_LIMITS: st.SearchStrategy[Raw] = st.dictionaries(
    st.sampled_from(
        [
            GPU,
            MEM,
            METAGPU,
            SHARED,
            "aliyun.com/gpu-count",
            "nvidia.com/gpu-0",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.10gb",
            "nvidia.com/gpumem",
            "nvidia.com/gpucores",
            "volcano.sh/vgpu-number",
            "volcano.sh/vgpu-memory",
            "volcano.sh/gpu-memory",
            "koordinator.sh/gpu",
            "clear.ml/fraction-1",
        ]
    ),
    st.integers(0, 100) | st.sampled_from([2**40, 2**54, 2**63 - 1]) | st.text("0123456789.m-", max_size=4),
    max_size=2,
)
CHOICES = st.builds(
    DialectSettings,
    clearml=st.builds(ClearmlSettings, legacy_replicas=st.sampled_from([0, 8]), mig_as_memory=st.booleans()),
    aliyun=st.builds(AliyunSettings, unit_mib=st.sampled_from([1, 1024]), count_divides_memory=st.booleans()),
    metagpu=st.builds(MetagpuSettings, allow_span=st.booleans()),
    replicas=st.builds(
        ReplicasSettings,
        entries=st.sampled_from([(), ("gpu:sharedgpu:4",), ("wrong",)]),
        time_slices=st.sampled_from([1, 1, 4]),
    ),
    hami=st.builds(HamiSettings, owns_plain_counts=st.booleans()),
    strict=st.booleans(),
    sharing=st.sampled_from([True, True, False]),
)


@fuzzed
@given(
    st.lists(ALL_LIMITS, min_size=1, max_size=2),
    st.lists(ALL_LIMITS, max_size=1),
    st.none() | st.sampled_from(["0.5", "1", "0.3", "x"]),
    KAI_ANNOTATIONS,
    CHOICES,
)
def test_whatever_is_written_the_answer_is_a_sound_request_or_a_refusal(
    limits: list[Raw], init: list[Raw], label: str | None, annotations: dict[str, str], settings: DialectSettings
) -> None:
    labels = {} if label is None else {LABEL: label}
    asked = asking(*limits, init=init, labels=labels, annotations=annotations)
    answer = understood(lambda: combine.translate(asked, settings))
    if answer is None:
        return
    assert record.read(record.render(answer)) == msgspec.structs.replace(answer, edits=(), env=())
    for request in (answer.request, *answer.alternatives):
        assert all(type(amount) is int for amount in amounts_of(request))
        assert all(0 < ask.nano <= NANO_PER_DEVICE for ask in request.shared if isinstance(ask, FractionAsk))
        assert settings.sharing or not request.is_shared
        devices = [GivenDevice(f"GPU-{n}", n, 80000, 0) for n in range(len(request.shared))]
        taken = msgspec.structs.replace(answer, request=request)
        written = combine.written_back(taken, devices, node="n", at_ns=1)
        assert written.env.keys() <= {asking_container.container.key for asking_container in request.containers}
    edited(asked, answer.edits)


@pytest.mark.parametrize("units", [2**40, 2**63 - 1])
def test_more_memory_than_a_record_can_say_is_refused(units: int) -> None:
    found = of_kind(Refusal, combine.translate(asking({MEM: units}), DEFAULTS))
    assert (found.code, found.field) == (Mistake.TOO_LARGE, "aliyun.com/gpu-mem of container main")


MANY = [container(f"c{n}", {GPU: 256, "nvidia.com/gpumem": 10}) for n in range(200)]


@pytest.mark.parametrize(
    ("containers", "asked"),
    [
        (MANY, 51_200),
        ([container(f"c{n}", {METAGPU: 25_600}) for n in range(2)], 512),
        ([container(f"c{n}", {MEM: 1}) for n in range(385)], 385),
        ([container(f"c{n}", {"nvidia.com/mig-1g.5gb": 200, METAGPU: 30}) for n in range(2)], 402),
    ],
)
def test_a_pod_that_asks_for_more_than_fits_into_a_binding_is_refused_before_its_ways_are_looked_for(
    containers: list[Raw], asked: int
) -> None:
    """Every way in which 200 containers of 256 shares each might meet took minutes, in which nobody else got in."""
    answer = of_kind(Refusal, combine.translate(pod(*containers), DEFAULTS))
    assert (answer.code, answer.value, answer.allowed) == (Mistake.TOO_MANY, str(asked), "at most 384 in a pod")


@pytest.mark.parametrize(
    ("limits", "settings", "asked"),
    [
        ({"nvidia.com/a": 100}, replicas(entries=("gpu:a:4",)), 200_000),
        ({"nvidia.com/mem": 100}, replicas(entries=("gpu:mem:-1",), shred_memory=True), 128_000),
        ({MEM: 1}, DEFAULTS, 2000),
    ],
)
def test_nor_are_the_ways_of_many_containers_made(
    limits: dict[str, int], settings: DialectSettings, asked: int
) -> None:
    """One pod with replicas for 3000 containers, a tenant's, held all reviews up for 214 s. This takes 0.1 s."""
    many = pod(*(container(f"c{n}", limits) for n in range(2000)))
    begun = time.process_time()
    answer = of_kind(Refusal, combine.translate(many, settings))
    assert (answer.code, answer.value) == (Mistake.TOO_MANY, str(asked))
    assert time.process_time() - begun < 10


def test_slices_of_many_profiles_are_counted_together() -> None:
    """60,000 profiles in one container were taken, and took 3 s to read each time."""
    answer = of_kind(Refusal, combine.translate(asking({f"nvidia.com/mig-{n:05}": 1 for n in range(60_000)}), DEFAULTS))
    assert (answer.code, answer.field) == (Mistake.TOO_MANY, "nvidia.com/mig-00256 of container main")
    assert (answer.value, answer.allowed) == ("1 beside 256", "1 to 256")


def test_of_very_many_resources_none_is_looked_for_to_name_it() -> None:
    """The words are told with what they say, but not after 1.5 s for one review."""
    others = {f"example.com/{n:05}": 1 for n in range(60_000)}
    answer = combine.translate(asking({**others, "nvidia.com/gpumem": 5, "volcano.sh/vgpu-memory": 6}), DEFAULTS)
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.field) == (Mistake.CONFLICTING, "volcano")


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        (pod(*(container(f"c{n}", {"nvidia.com/gpumem": 10}) for n in range(384))), DEFAULTS),
        (pod(*(container(f"c{n}", {GPU: 192, "nvidia.com/gpumem": 10}) for n in range(2))), DEFAULTS),
        (asking({METAGPU: 25_599}), DialectSettings(metagpu=MetagpuSettings(allow_span=True))),
        (
            pod(*(container(f"c{n}", {"nvidia.com/a": 3, "nvidia.com/b": 6}) for n in range(40))),
            replicas(entries=("gpu:a:4", "gpu:b:8")),
        ),
        (
            asking({"nvidia.com/mem": 200}),
            msgspec.structs.replace(DEFAULTS, replicas=ReplicasSettings(entries=("gpu:mem:-1",), shred_memory=True)),
        ),
    ],
)
def test_what_the_largest_pods_are_recorded_with_can_be_read(asked: Pod, settings: DialectSettings) -> None:
    answer = of_kind(Translation, combine.translate(asked, settings))
    assert record.read(record.render(answer)) == msgspec.structs.replace(answer, edits=(), env=())


def test_of_two_that_ask_the_same_the_caps_of_either_are_wished() -> None:
    """X3: Koordinator without its label for isolation only keeps accounts."""
    limits = {
        "koordinator.sh/gpu-core": 40,
        "koordinator.sh/gpu-memory-ratio": 30,
        "nvidia.com/gpumem-percentage": 30,
        "nvidia.com/gpucores": 40,
    }
    answer = of_kind(Translation, combine.translate(asking(limits), DialectSettings()))
    assert (answer.wishes.memory_cap, answer.wishes.compute_cap) == (True, True)
