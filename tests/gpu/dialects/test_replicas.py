from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.colocation import MOST_ALTERNATIVES
from gpu.dialects import replicas
from gpu.dialects.replicas import splits, table
from gpu.dialects.settings import DialectSettings, ReplicasSettings
from gpu.request import Ask, ContainerRef, FractionAsk, GpuRequest, MemoryAsk, MigAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Mistake, NoteCode, Refusal, ResourceEdit, Translation, Wishes, Written
from tests.fuzzing import fuzzed
from tests.gpu.dialects.pods import C0, C1, I0, Raw, asking, understood
from tests.gpu.dialects.rows import Row, asks, holds, note, parametrized, without
from tests.values import of_kind

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/sharedgpu"
MIG = "nvidia.com/mig-3g.20gb"
FULL = FractionAsk(NANO_PER_DEVICE)
HALF_SLICE = FractionAsk(NANO_PER_DEVICE // 2, profile="3g.20gb")
SLICED = Wishes(mode="time-slicing")
MPS = Wishes(memory_cap=True, compute_cap=True, mode="mps")


def settings(*entries: str, strict: bool = False, **chosen: Any) -> DialectSettings:
    return DialectSettings(replicas=ReplicasSettings(entries=entries, **chosen), strict=strict)


FOUR = settings("gpu:sharedgpu:4")
MEMORY = settings("gpu:gpu-mem-gb:-1")
SLICES = settings("mig-3g.20gb:small:2")
TIME = settings(time_slices=4)


def quarters(count: int = 1, seat: str = "") -> FractionAsk:
    return FractionAsk(count * 250_000_000, seat)


def sat(ask: FractionAsk) -> FractionAsk:
    return msgspec.structs.replace(ask, seat="a")


def made(request: GpuRequest, *, strategy: str = "spread", **more: Any) -> Translation:
    return Translation(dialect="replicas", request=request, strategy=strategy, **more)


def one(*asked: Ask, **more: Any) -> Translation:
    return made(asks((C0, asked)), **more)


def instead(*ways: Iterable[Ask]) -> tuple[GpuRequest, ...]:
    return tuple(asks((C0, way)) for way in ways)


def fewer(resource: str, count: int, devices: str) -> Any:
    return note(NoteCode.WEAKENED, f"{resource} of container main", str(count), f"{devices} devices")


def edit(resource: str, count: int | None = None, where: ContainerRef = C0) -> ResourceEdit:
    return ResourceEdit(where, resource, count)


def mps(count: int = 1) -> FractionAsk:
    return FractionAsk(count * 250_000_000, compute_percent=25 * count)


LISTED = [
    Row("I1 a replica", asking({SHARED: 1}), one(quarters()), FOUR),
    Row("I1 a third of a device", asking({SHARED: 1}), one(FractionAsk(333_333_333)), settings("gpu:sharedgpu:3")),
    Row("I1 none", asking({SHARED: 0}), made(GpuRequest(), strategy=""), FOUR),
    Row("I1 malformed", asking({SHARED: "0.5"}), (Mistake.MALFORMED, "nvidia.com/sharedgpu of container main"), FOUR),
    Row(
        "I1 several entries in one text",
        asking({SHARED: 1}),
        one(quarters()),
        settings("mig-3g.20gb:small:2,gpu:sharedgpu:4"),
    ),
    Row("I1 the device's own name", asking({GPU: 1}), one(quarters(), edits=(edit(GPU),)), settings("gpu:gpu:4")),
    Row(
        "I1 two containers, on cards of their own first (X5)",
        asking({SHARED: 1}, {SHARED: 1}),
        made(
            asks((C0, [quarters()]), (C1, [quarters()])),
            alternatives=(asks((C0, [quarters(seat="a")]), (C1, [quarters(seat="a")])),),
        ),
        FOUR,
    ),
    Row(
        "I2 distinct devices first",
        asking({SHARED: 2}),
        one(quarters(), quarters(), alternatives=instead([quarters(2)]), notes=fewer(SHARED, 2, "1 to 2")),
        FOUR,
    ),
    Row(
        "I3 fewer devices, evenly first",
        asking({SHARED: 4}),
        one(
            *[quarters()] * 4,
            alternatives=instead(
                [quarters(2), quarters(), quarters()],
                [quarters(2), quarters(2)],
                [quarters(3), quarters()],
                [quarters(4)],
            ),
            notes=fewer(SHARED, 4, "1 to 4"),
        ),
        FOUR,
    ),
    Row(
        "I3 no more of one device than it has",
        asking({SHARED: 3}),
        one(
            *[FractionAsk(500_000_000)] * 3,
            alternatives=instead([FULL, FractionAsk(500_000_000)]),
            notes=fewer(SHARED, 3, "2 to 3"),
        ),
        settings("gpu:sharedgpu:2"),
    ),
    Row(
        "I3 distinct only (waits)",
        asking({SHARED: 2}),
        one(quarters(), quarters()),
        settings("gpu:sharedgpu:4", distinct_only=True),
    ),
    Row(
        "I3 strict (waits)", asking({SHARED: 2}), one(quarters(), quarters()), settings("gpu:sharedgpu:4", strict=True)
    ),
    Row(
        "I4 more than all replicas (waits)",
        asking({SHARED: 256}),
        one(*[quarters()] * 256),
        settings("gpu:sharedgpu:4", distinct_only=True),
    ),
    Row(
        "I4 more than any node has",
        asking({SHARED: 257}),
        (Mistake.TOO_MANY, "nvidia.com/sharedgpu of container main"),
        FOUR,
    ),
    Row("I5 memory of one card", asking({"nvidia.com/gpu-mem-gb": 8}), one(MemoryAsk(8000)), MEMORY),
    Row("I5 more than a card (waits)", asking({"nvidia.com/gpu-mem-gb": 500}), one(MemoryAsk(500_000)), MEMORY),
    Row(
        "I5 shredded, where that is chosen",
        asking({"nvidia.com/gpu-mem-gb": 3}),
        one(
            *[MemoryAsk(1000)] * 3,
            alternatives=instead([MemoryAsk(2000), MemoryAsk(1000)], [MemoryAsk(3000)]),
            notes=fewer("nvidia.com/gpu-mem-gb", 3, "1 to 3"),
        ),
        settings("gpu:gpu-mem-gb:-1", shred_memory=True),
    ),
    Row(
        "I5 shredded, strict",
        asking({"nvidia.com/gpu-mem-gb": 3}),
        one(MemoryAsk(3000)),
        settings("gpu:gpu-mem-gb:-1", shred_memory=True, strict=True),
    ),
    Row("I6 half a slice", asking({"nvidia.com/small": 1}), one(HALF_SLICE), SLICES),
    Row(
        "I6 two halves",
        asking({"nvidia.com/small": 2}),
        one(
            HALF_SLICE,
            HALF_SLICE,
            alternatives=instead([FractionAsk(NANO_PER_DEVICE, profile="3g.20gb")]),
            notes=fewer("nvidia.com/small", 2, "1 to 2"),
        ),
        SLICES,
    ),
    Row(
        "I6 shared under its own name",
        asking({MIG: 1}),
        one(HALF_SLICE, edits=(edit(MIG),)),
        settings("mig-3g.20gb:mig-3g.20gb:2"),
    ),
    Row(
        "I6 two halves in two containers, apart before together",
        asking({"nvidia.com/small": 1}, {"nvidia.com/small": 1}),
        made(
            asks((C0, [HALF_SLICE]), (C1, [HALF_SLICE])),
            alternatives=(asks((C0, [sat(HALF_SLICE)]), (C1, [sat(HALF_SLICE)])),),
        ),
        SLICES,
    ),
    Row(
        "I6 parts of a card and of a slice are of two devices",
        asking({"nvidia.com/small": 1}, {SHARED: 1}),
        made(asks((C0, [HALF_SLICE]), (C1, [quarters()]))),
        settings("mig-3g.20gb:small:2,gpu:sharedgpu:4"),
    ),
    Row(
        "I6 half a slice beside a whole one and a whole GPU in other containers",
        asking({"nvidia.com/small": 1}, {MIG: 1, GPU: 1}),
        made(asks((C0, [HALF_SLICE]), (C1, [WholeAsk(), MigAsk("3g.20gb")]))),
        SLICES,
    ),
    Row(
        "I6 half a slice beside a whole one in its container",
        asking({"nvidia.com/small": 1, "nvidia.com/mig-1g.5gb": 1}),
        (Mistake.CONFLICTING, "nvidia.com/<name> of container main"),
        SLICES,
    ),
    Row(
        "I6 half a slice beside a whole GPU in its container",
        asking({"nvidia.com/small": 1, GPU: 1}),
        (Mistake.CONFLICTING, "nvidia.com/<name> of container main"),
        SLICES,
    ),
    Row(
        "I7 a slice by the name of a device",
        asking({GPU: 1}),
        one(MigAsk("3g.20gb"), strategy="", edits=(edit(GPU), edit(MIG, 1))),
        settings("mig-3g.20gb:gpu:1"),
    ),
    Row(
        "I7 slices by a new name beside their own",
        asking({"nvidia.com/medium": 2, MIG: 1}),
        one(*[MigAsk("3g.20gb")] * 3, strategy="", edits=(edit("nvidia.com/medium"), edit(MIG, 3))),
        settings("mig-3g.20gb:medium:1"),
    ),
    Row(
        "I7 devices by a new name",
        asking({"nvidia.com/biggpu": 2}),
        one(WholeAsk(), WholeAsk(), strategy="", edits=(edit(GPU, 2), edit("nvidia.com/biggpu"))),
        settings("gpu:biggpu:1"),
    ),
    Row(
        "I8 what no entry names is whole, beside a replica a whole share",
        asking({SHARED: 1}, {GPU: 1}, init=[{MIG: 1}]),
        made(asks((C0, [quarters()]), (C1, [FULL]), (I0, [MigAsk("3g.20gb")])), edits=(edit(GPU, where=C1),)),
        FOUR,
    ),
    *(
        Row(f"I9 {entry!r}", asking({SHARED: 1}), (Mistake.MALFORMED, "resourceConfig"), settings(entry))
        for entry in (
            "gpu:x",
            "gpu:x:two",
            "gpu:x:0",
            "gpu:x:-2",
            "gpu:x:1:1",
            "gpu:x:1.5",
            "gpu:x:",
            "gpu::2",
            ":x:2",
            "",
            "cpu:x:2",
            "gpu:X:2",
            "gpu:x:1000000001",
            "gpu:x:+2",
            "mig-3g.20gb:x:-1",
            "gpu:sharedgpu:4,",
            "gpu:sharedgpu:4,mig-3g:x:2",
            "gpu:sharedgpu:2,mig-3g.20gb:sharedgpu:4",
            "gpu:x:٢",
        )
    ),
    Row("N3 a device that is shared", asking({GPU: 1}), one(quarters(), wishes=SLICED, edits=(edit(GPU),)), TIME),
    Row("N3 by the name of shared ones", asking({"nvidia.com/gpu.shared": 1}), one(quarters(), wishes=SLICED), TIME),
    Row(
        "N3 packed",
        asking({GPU: 1}),
        one(quarters(), strategy="binpack", wishes=SLICED, edits=(edit(GPU),)),
        settings(time_slices=4, packed=True),
    ),
    Row(
        "N3 of eight",
        asking({GPU: 1}),
        one(FractionAsk(125_000_000), wishes=SLICED, edits=(edit(GPU),)),
        settings(time_slices=8),
    ),
    Row(
        "N4 up to so many devices",
        asking({GPU: 2}),
        one(
            quarters(),
            quarters(),
            alternatives=instead([quarters(2)]),
            wishes=SLICED,
            notes=fewer(GPU, 2, "1 to 2"),
            edits=(edit(GPU),),
        ),
        TIME,
    ),
    Row(
        "N4 failing above one",
        asking({GPU: 2}),
        (Mistake.TOO_MANY, "nvidia.com/gpu of container main"),
        settings(time_slices=4, fail_above_one=True),
    ),
    Row("N5 under MPS", asking({GPU: 1}), one(mps(), wishes=MPS, edits=(edit(GPU),)), settings(mps_replicas=4)),
    Row(
        "N5 more than one",
        asking({GPU: 2}),
        (Mistake.TOO_MANY, "nvidia.com/gpu of container main"),
        settings(mps_replicas=4),
    ),
    Row(
        "N5 more than one, where that is allowed",
        asking({"nvidia.com/gpu.shared": 2}),
        one(
            mps(), mps(), alternatives=instead([mps(2)]), wishes=MPS, notes=fewer("nvidia.com/gpu.shared", 2, "1 to 2")
        ),
        settings(mps_replicas=4, fail_above_one=False),
    ),
    *(
        Row(f"N5 {name}", asking({GPU: 1}), (Mistake.MALFORMED, field), chosen)
        for name, field, chosen in [
            ("more clients than a daemon has", "mps", settings(mps_replicas=49)),
            ("no replicas", "time-slicing", settings(time_slices=0)),
            ("both ways to share", "mps", settings(time_slices=2, mps_replicas=2)),
            ("an entry beside", "time-slicing", settings("gpu:gpu:4", time_slices=2)),
        ]
    ),
]

OWN = (SHARED, "nvidia.com/small", "nvidia.com/gpu-mem-gb", "nvidia.com/gpu.shared")
ROWS = [without(row, *OWN) for row in LISTED]

SILENT = [
    Row("I8 a resource without an entry", asking({GPU: 1, MIG: 1}), made(GpuRequest()), FOUR),
    Row(
        "I8 an entry that changes nothing",
        asking({GPU: 1, MIG: 1}),
        made(GpuRequest()),
        settings("gpu:gpu:1", "mig-3g.20gb:mig-3g.20gb:1"),
    ),
    Row("N1 a whole device", asking({GPU: 1}), made(GpuRequest())),
    Row("N2 two in each of two containers", asking({GPU: 2}, {GPU: 2}), made(GpuRequest())),
    Row("N3 no sharing", asking({"nvidia.com/gpu.shared": 1}), made(GpuRequest())),
    Row("N7 nothing", asking({"cpu": 1}), made(GpuRequest()), TIME),
    Row("I9 wrong entries, and a pod without GPUs", asking({"cpu": 1}), made(GpuRequest()), settings("gpu:x")),
]


@parametrized(ROWS)
def test_a_row_of_the_table(row: Row) -> None:
    assert replicas.speaks(row.pod, row.settings) or replicas.claims(row.pod, row.settings)
    holds(row, replicas.translate)


@parametrized(SILENT)
def test_what_is_no_replica_is_left_alone(row: Row) -> None:
    assert not replicas.speaks(row.pod, row.settings)
    assert not replicas.claims(row.pod, row.settings)


@parametrized([row for row in ROWS if isinstance(row.expected, Translation)])
def test_nothing_is_written_back_but_the_devices(row: Row) -> None:
    assert isinstance(row.expected, Translation)
    assert replicas.written_back(row.expected, ()) == row.written == Written()


def test_i9_a_wrong_entry_is_named() -> None:
    refusal = of_kind(Refusal, table(ReplicasSettings(entries=("gpu:sharedgpu:4", "gpu:x:two"))))
    assert (refusal.field, refusal.value) == ("resourceConfig", "gpu:x:two")
    assert refusal.message == "resourceConfig: gpu:x:two is no entry"


def test_n4_the_refusal_has_the_words_of_the_origin() -> None:
    refusal = of_kind(Refusal, replicas.translate(asking({GPU: 2}), settings(time_slices=4, fail_above_one=True)))
    assert refusal.message == "invalid request: maximum request size for shared resources is 1; found 2"


@pytest.mark.parametrize("count", [9, 40, 255])
def test_many_replicas_are_taken_from_fewer_devices_as_evenly_as_can_be(count: int) -> None:
    ways = splits(count, 4)
    assert [len(way) for way in ways] == list(range(count - 1, -(-count // 4) - 1, -1))
    assert all(sum(way) == count and max(way) - min(way) <= 1 and max(way) <= 4 for way in ways)


def test_of_too_many_ways_those_that_need_fewest_devices_stay() -> None:
    answer = of_kind(Translation, replicas.translate(asking({SHARED: 256}), FOUR))
    assert len(answer.alternatives) < MOST_ALTERNATIVES + 1
    assert answer.alternatives[-1] == asks((C0, [quarters(4)] * 64))


@given(st.integers(1, 5000))
def test_as_many_replicas_as_a_device_has_fit_into_it(count: int) -> None:
    answer = of_kind(Translation, replicas.translate(asking({SHARED: 1}), settings(f"gpu:sharedgpu:{count}")))
    nano = sum(ask.nano for ask in answer.request.shared if isinstance(ask, FractionAsk)) or NANO_PER_DEVICE
    assert 0 <= NANO_PER_DEVICE - count * nano < count


AMOUNTS = st.integers(-1, 12) | st.text("0123456789.mkie-", max_size=5) | st.floats(allow_nan=True)
NAMES = st.sampled_from([SHARED, "nvidia.com/small", "nvidia.com/gpu-mem-gb", GPU, MIG, "nvidia.com/gpu.shared"])
LIMITS: st.SearchStrategy[Raw] = st.dictionaries(NAMES, AMOUNTS) | st.dictionaries(
    NAMES, st.integers(0, 12), max_size=2
)
ENTRIES = st.lists(
    st.sampled_from(["gpu:sharedgpu:4", "mig-3g.20gb:small:2", "gpu:gpu-mem-gb:-1", "mig-3g.20gb:gpu:1"]), unique=True
) | st.lists(st.text("gpumi-:,0123456789.x", max_size=12), max_size=2)
CHOICES = st.builds(
    ReplicasSettings,
    entries=ENTRIES.map(tuple),
    time_slices=st.sampled_from([1, 1, 3]),
    mps_replicas=st.sampled_from([1, 1, 7]),
    fail_above_one=st.none() | st.booleans(),
    distinct_only=st.booleans(),
    shred_memory=st.booleans(),
    packed=st.booleans(),
)


def charged(request: GpuRequest) -> tuple[int, int, int, int, int]:
    """Of each kind, all asks together."""
    found = [ask for container in request.containers for ask in container.asks]
    return (
        sum(ask.nano for ask in found if isinstance(ask, FractionAsk) and not ask.profile),
        sum(ask.nano for ask in found if isinstance(ask, FractionAsk) and ask.profile),
        sum(ask.mem_mib for ask in found if isinstance(ask, MemoryAsk)),
        sum(isinstance(ask, MigAsk) for ask in found),
        sum(isinstance(ask, WholeAsk) for ask in found),
    )


@fuzzed
@given(st.lists(LIMITS, min_size=1, max_size=3), st.lists(LIMITS, max_size=1), CHOICES)
def test_whatever_is_written_the_answer_is_a_sound_request_or_a_refusal(
    limits: list[Raw], init: list[Raw], chosen: ReplicasSettings
) -> None:
    asked, choices = asking(*limits, init=init), DialectSettings(replicas=chosen)
    answer = understood(lambda: replicas.translate(asked, choices))
    if answer is None:
        return
    assert len(answer.alternatives) <= MOST_ALTERNATIVES
    for request in (answer.request, *answer.alternatives):
        assert charged(request) == charged(answer.request)
        assert not (request.whole and any(not ask.profile for ask in request.shared))
        assert all(0 < ask.nano <= NANO_PER_DEVICE for ask in request.shared if isinstance(ask, FractionAsk))


def test_nobody_can_tell_what_a_gpu_is_where_an_entry_is_wrong_in_whichever_container_it_stands() -> None:
    """I9."""
    assert replicas.claims(asking({"cpu": 1}, {"cpu": 1, GPU: 1}), settings("gpu:x"))


def test_replicas_of_two_resources_are_each_divided_by_their_own_number() -> None:
    answer = replicas.translate(
        asking({SHARED: 3, "nvidia.com/small": 3}), settings("gpu:sharedgpu:2", "mig-3g.20gb:small:8")
    )
    assert isinstance(answer, Translation)
    for request in (answer.request, *answer.alternatives):
        shares = [ask for ask in request.shared if isinstance(ask, FractionAsk)]
        assert sum(ask.nano for ask in shares if not ask.profile) == 3 * NANO_PER_DEVICE // 2
        assert sum(ask.nano for ask in shares if ask.profile) == 3 * (NANO_PER_DEVICE // 8)
    # Two ways for the cards (1+1+1 and 2+1), three for the slices (1+1+1, 2+1 and 3).
    assert 1 + len(answer.alternatives) == 6


@pytest.mark.parametrize(
    "entries", [("gpu:sharedgpu:4", "mig-3g.20gb:small:2"), ("mig-3g.20gb:small:2", "gpu:sharedgpu:4")]
)
def test_a_pod_of_replicas_without_a_mode_has_none(entries: tuple[str, ...]) -> None:
    answer = of_kind(Translation, replicas.translate(asking({SHARED: 1}, {"nvidia.com/small": 1}), settings(*entries)))
    assert answer.wishes == Wishes()


def test_a_share_beside_a_whole_gpu_has_the_mode_of_the_share() -> None:
    answer = of_kind(Translation, replicas.translate(asking({"nvidia.com/gpu.shared": 1}, {GPU: 1}), TIME))
    assert answer.wishes == SLICED


def test_as_many_ways_as_the_scheduler_tries_are_told() -> None:
    """Of more, some are left out; the first one, and those that leave it least, stay."""
    few, many = (
        replicas.translate(asking(*[{SHARED: 4}] * containers), settings("gpu:sharedgpu:8", packed=True))
        for containers in (1, 8)
    )
    assert isinstance(few, Translation)
    assert isinstance(many, Translation)
    assert 1 + len(few.alternatives) == 5
    assert len(many.alternatives) == MOST_ALTERNATIVES
