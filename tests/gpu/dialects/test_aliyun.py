from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gpu.dialects import aliyun
from gpu.dialects.settings import AliyunSettings, DialectSettings
from gpu.request import GpuRequest, MemoryAsk, MigAsk, WholeAsk
from gpu.translation import GivenDevice, Mistake, NoteCode, ResourceEdit, Translation, Written
from tests.fuzzing import fuzzed
from tests.gpu.dialects.pods import C0, C1, C2, I0, Raw, asking, container, pod, understood
from tests.gpu.dialects.rows import Row, asks, edited, holds, note, parametrized, without
from wire.core import Pod

MEM = "aliyun.com/gpu-mem"
COUNT = "aliyun.com/gpu-count"
MIB = DialectSettings(aliyun=AliyunSettings(unit_mib=1))
DIVIDED = DialectSettings(aliyun=AliyunSettings(count_divides_memory=True))
STRICT = DialectSettings(strict=True)
T4 = [GivenDevice(f"GPU-{index}", index, 15109, 0) for index in (1, 3)]
NOW_NS = 1_700_000_000_000_000_000


def made(request: GpuRequest, **more: Any) -> Translation:
    return Translation(dialect="aliyun", request=request, strategy="binpack" if request.is_shared else "", **more)


def memory(mem_mib: int, **more: Any) -> Translation:
    return made(asks((C0, [MemoryAsk(mem_mib)])), **more)


def written(
    pod_units: int, containers: dict[str, int], *, card: int = 14, index: str = "1", allocation: str = ""
) -> Written:
    common = {
        "ALIYUN_COM_GPU_MEM_IDX": index,
        "ALIYUN_COM_GPU_MEM_DEV": str(card),
        "ALIYUN_COM_GPU_MEM_POD": str(pod_units),
    }
    return Written(
        env={key: {**common, "ALIYUN_COM_GPU_MEM_CONTAINER": str(units)} for key, units in containers.items()},
        annotations={
            **common,
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": str(NOW_NS),
            **({"scheduler.framework.gpushare.allocation": allocation} if allocation else {}),
        },
    )


def with_variable(value: str) -> Pod:
    return pod(container("main", {MEM: 5}, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]))


VARIABLE = "env NVIDIA_VISIBLE_DEVICES of container main"
PRESET = {"ALIYUN_COM_GPU_MEM_IDX": "7", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "ALIYUN_COM_GPU_MEM_POD": "1"}

LISTED = [
    Row("A1 in GiB", asking({MEM: 5}), memory(5120), written=written(5, {"c0": 5})),
    Row("A1 in quotes", asking({MEM: "5"}), memory(5120), written=written(5, {"c0": 5})),
    Row("A1 in MiB", asking({MEM: 5120}), memory(5120, unit=1), MIB, written(5120, {"c0": 5120}, card=15109)),
    Row(
        "A1 in a request alone",
        pod({"name": "main", "resources": {"requests": {MEM: 5}}}),
        memory(5120),
        written=written(5, {"c0": 5}),
    ),
    Row(
        "A1 beside a MIG slice",
        asking({MEM: 5, "nvidia.com/mig-1g.5gb": 1}),
        made(asks((C0, [MemoryAsk(5120), MigAsk("1g.5gb")]))),
        written=written(5, {"c0": 5}),
    ),
    Row(
        "A1 beside a whole GPU",
        asking({MEM: 5}, {"nvidia.com/gpu": 1}),
        (Mistake.CONFLICTING, "nvidia.com/gpu of container side"),
    ),
    Row("A2 a full card (placement remains)", asking({MEM: 14}), memory(14336), written=written(14, {"c0": 14})),
    Row("A3 more than any card (waits)", asking({MEM: 500}), memory(512000), written=written(500, {"c0": 500})),
    Row(
        "A4 two containers on one card",
        asking({MEM: 2}, {MEM: 3}),
        made(asks((C0, [MemoryAsk(2048, seat="a")]), (C1, [MemoryAsk(3072, seat="a")]))),
        written=written(5, {"c0": 2, "c1": 3}),
    ),
    Row(
        "A5 a neighbour that does not ask (void remains)",
        asking({MEM: 5}, {}),
        memory(5120),
        written=written(5, {"c0": 5}),
    ),
    Row(
        "A6 an init container alone",
        asking({}, init=[{MEM: 3}]),
        made(asks((I0, [MemoryAsk(3072)]))),
        written=written(3, {"i0": 3}),
    ),
    Row(
        "A6 the larger of init and regular ones",
        asking({MEM: 2}, {MEM: 3}, init=[{MEM: 7}]),
        made(
            asks(
                (C0, [MemoryAsk(2048, seat="a")]), (C1, [MemoryAsk(3072, seat="a")]), (I0, [MemoryAsk(7168, seat="a")])
            )
        ),
        written=written(7, {"c0": 2, "c1": 3, "i0": 7}),
    ),
    Row("A7 nothing", asking({MEM: 0}), made(GpuRequest())),
    Row(
        "A7 nothing beside something",
        asking({MEM: 0}, {MEM: 1}),
        made(asks((C1, [MemoryAsk(1024)]))),
        written=written(1, {"c1": 1}),
    ),
    *(
        Row(f"A8 {text}", asking({MEM: text}), (Mistake.MALFORMED, "aliyun.com/gpu-mem of container main"))
        for text in ("1500m", "-2", "0.5", "5GiB", "")
    ),
    Row("A8 a malformed count", asking({COUNT: "0.5"}), (Mistake.MALFORMED, "aliyun.com/gpu-count of container main")),
    Row(
        "A9 a count alone",
        asking({COUNT: 2}),
        made(
            asks((C0, [WholeAsk()] * 2)),
            notes=note(NoteCode.MORE_THAN_ORIGIN, "aliyun.com/gpu-count of container main", "2", "nvidia.com/gpu: 2"),
            edits=(ResourceEdit(C0, "nvidia.com/gpu", 2),),
        ),
    ),
    Row("A9 too many", asking({COUNT: 257}), (Mistake.TOO_MANY, "aliyun.com/gpu-count of container main")),
    Row(
        "A9 beside another count",
        asking({COUNT: 2, "nvidia.com/gpu": 1}),
        (Mistake.CONFLICTING, "nvidia.com/gpu of container main"),
    ),
    Row(
        "A10 refused by default",
        asking({COUNT: 2, MEM: 8}),
        (Mistake.CONFLICTING, "aliyun.com/gpu-count of container main"),
    ),
    Row(
        "A10 refused in two containers",
        asking({MEM: 8}, {COUNT: 2}),
        (Mistake.CONFLICTING, "aliyun.com/gpu-count of container side"),
    ),
    Row(
        "A10 a part on each card",
        asking({COUNT: 2, MEM: 8}),
        made(asks((C0, [MemoryAsk(4096)] * 2))),
        DIVIDED,
        written(8, {"c0": 8}, index="1,3", allocation='{"0":{"1":4,"3":4}}'),
    ),
    Row(
        "A10 two containers on the same cards",
        asking({COUNT: 2, MEM: 8}, {COUNT: 2, MEM: 6}),
        made(
            asks(
                (C0, [MemoryAsk(4096, seat="a"), MemoryAsk(4096, seat="b")]),
                (C1, [MemoryAsk(3072, seat="a"), MemoryAsk(3072, seat="b")]),
            )
        ),
        DIVIDED,
        written(14, {"c0": 8, "c1": 6}, index="1,3", allocation='{"0":{"1":4,"3":4},"1":{"1":3,"3":3}}'),
    ),
    Row(
        "A10 does not divide",
        asking({COUNT: 3, MEM: 8}),
        (Mistake.MALFORMED, "aliyun.com/gpu-mem of container main"),
        DIVIDED,
    ),
    Row(
        "A10 a count without memory",
        asking({MEM: 8}, {COUNT: 1}),
        (Mistake.INCOMPLETE, "aliyun.com/gpu-count of container side"),
        DIVIDED,
    ),
    *(
        Row(
            f"A11 {value}",
            with_variable(value),
            memory(5120, notes=note(NoteCode.VARIABLE_OVERRIDDEN, VARIABLE, value, "the GPU of the pod")),
            written=written(5, {"c0": 5}),
        )
        for value in ("all", "0")
    ),
    Row("A11 strict", with_variable("all"), (Mistake.CONFLICTING, VARIABLE), STRICT),
    Row(
        "A12 MiB in a cluster of GiB (waits, hint remains)",
        asking({MEM: 16276}),
        memory(16276 * 1024),
        written=written(16276, {"c0": 16276}),
    ),
    Row("A12 GiB in a cluster of MiB", asking({MEM: 5}), memory(5, unit=1), MIB, written(5, {"c0": 5}, card=15109)),
    Row(
        "A13 annotations of the user", asking({MEM: 5}, annotations=PRESET), memory(5120), written=written(5, {"c0": 5})
    ),
]

ROWS = [without(row, MEM, COUNT) for row in LISTED]
TRANSLATED = [row for row in ROWS if isinstance(row.expected, Translation)]


@parametrized(ROWS)
def test_a_row_of_the_table(row: Row) -> None:
    assert aliyun.speaks(row.pod, row.settings)
    holds(row, aliyun.translate)


@parametrized(TRANSLATED)
def test_apps_and_the_inspecting_tool_read_what_they_know(row: Row) -> None:
    assert isinstance(row.expected, Translation)
    given_devices = T4[: len(row.expected.request.shared)]
    back = aliyun.written_back(row.expected, given_devices, at_ns=NOW_NS)
    assert back == row.written


@parametrized(TRANSLATED)
def test_a_pod_that_was_through_admission_names_no_resource_that_no_node_has(row: Row) -> None:
    assert isinstance(row.expected, Translation)
    assert not aliyun.speaks(edited(row.pod, row.expected.edits), row.settings)


def test_a_container_with_fewer_cards_than_its_neighbour_reads_its_own() -> None:
    translation = aliyun.translate(asking({MEM: 1}, {}, {COUNT: 2, MEM: 8}), DIVIDED)
    assert isinstance(translation, Translation)
    assert translation.request == asks(
        (C0, [MemoryAsk(1024, seat="a")]), (C2, [MemoryAsk(4096, seat="a"), MemoryAsk(4096)])
    )
    env = aliyun.written_back(translation, T4, at_ns=NOW_NS).env
    assert (env["c0"]["ALIYUN_COM_GPU_MEM_IDX"], env["c2"]["ALIYUN_COM_GPU_MEM_IDX"]) == ("1", "1,3")


def test_a_record_that_is_no_multiple_of_the_unit_rounds_up_what_is_used() -> None:
    back = aliyun.written_back(memory(1500), T4[:1], at_ns=NOW_NS)
    assert back == written(2, {"c0": 2})


def test_other_pods_are_left_alone() -> None:
    assert not aliyun.speaks(asking({"nvidia.com/gpu": 1}, annotations=PRESET), DialectSettings())


AMOUNTS = st.integers(-1, 300) | st.text("0123456789.mkie-", max_size=5) | st.floats(allow_nan=True)
LIMITS: st.SearchStrategy[Raw] = st.dictionaries(st.sampled_from([MEM, COUNT, "nvidia.com/gpu"]), AMOUNTS)
COUNTED: st.SearchStrategy[Raw] = st.dictionaries(st.sampled_from([MEM, COUNT]), st.integers(0, 12))
CHOICES = st.builds(
    DialectSettings,
    aliyun=st.builds(AliyunSettings, unit_mib=st.sampled_from([1, 1024]), count_divides_memory=st.booleans()),
)


def written_amount(value: str | float) -> int:
    """A whole amount as it is written down: a float has its shortest decimal, a text may have k or m behind it."""
    text = str(value)
    scale = {"k": Decimal(1000), "m": Decimal("0.001")}.get(text[-1:])
    return int(Decimal(text) if scale is None else Decimal(text[:-1]) * scale)


@fuzzed
@given(st.lists(LIMITS | COUNTED, min_size=1, max_size=3), st.lists(LIMITS | COUNTED, max_size=1), CHOICES)
@example([{MEM: 3.995899709432087e16}], [], DialectSettings())
@example([{MEM: "1k"}], [], DialectSettings())
def test_whatever_is_written_the_answer_is_a_sound_request_or_a_refusal(
    limits: list[Raw], init: list[Raw], settings: DialectSettings
) -> None:
    asked = asking(*limits, init=init)
    answer = understood(lambda: aliyun.translate(asked, settings))
    if answer is None:
        return
    unit = settings.aliyun.unit_mib
    for asking_container, limit in zip(asked.spec.containers, limits, strict=True):
        mine = [c.asks for c in answer.request.containers if c.container.name == asking_container.name]
        mib = sum(ask.mem_mib for mine_asks in mine for ask in mine_asks if isinstance(ask, MemoryAsk))
        assert mib == written_amount(limit.get(MEM, 0)) * unit
    devices = [GivenDevice(f"GPU-{n}", n, 80000, 0) for n in range(len(answer.request.shared))]
    back = aliyun.written_back(answer, devices, at_ns=NOW_NS)
    assert set(back.env) == {c.container.key for c in answer.request.containers if c.whole == 0}
