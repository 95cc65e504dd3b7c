from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpu.colocation import MOST_ALTERNATIVES, MOST_TRIED
from gpu.dialects import metagpu
from gpu.dialects.settings import DialectSettings, MetagpuSettings
from gpu.request import Ask, FractionAsk, GpuRequest, MigAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import GivenDevice, Mistake, NoteCode, Refusal, ResourceEdit, Translation, Wishes, Written
from tests.fuzzing import fuzzed
from tests.gpu.dialects.pods import C0, C1, C2, I0, Raw, asking, understood
from tests.gpu.dialects.rows import Row, asks, edited, holds, note, parametrized, without
from tests.values import of_kind

RESOURCE = "cnvrg.io/metagpu"
FIELD = "cnvrg.io/metagpu of container main"
FULL = FractionAsk(NANO_PER_DEVICE)
T4 = [GivenDevice("GPU-b", 1, 15109, 0), GivenDevice("GPU-d", 3, 15109, 0)]


def part(percent: int, seat: str = "") -> FractionAsk:
    return FractionAsk(percent * 10_000_000, seat)


def settings(*, strict: bool = False, **chosen: Any) -> DialectSettings:
    return DialectSettings(metagpu=MetagpuSettings(**chosen), strict=strict)


SPAN = settings(allow_span=True)


def made(request: GpuRequest, **more: Any) -> Translation:
    if request.is_shared:
        more = {"strategy": "binpack", "wishes": Wishes(memory_cap=True), **more}
    return Translation(dialect="metagpu", request=request, **more)


def one(*asked: Ask, **more: Any) -> Translation:
    return made(asks((C0, asked)), **more)


def counted(count: int) -> tuple[ResourceEdit]:
    return (ResourceEdit(C0, "nvidia.com/gpu", count),)


def env(*units: tuple[GivenDevice, int], most_mib: int) -> dict[str, str]:
    ids = [f"cnvrg-meta-{device.index}-{number}-{device.uuid}" for device, count in units for number in range(count)]
    return {"CNVRG_META_GPU_DEVICES": ",".join(ids), "METAGPU_MAX_MEM": str(most_mib)}


def cut(*spans: Iterable[int]) -> tuple[GpuRequest, ...]:
    return tuple(asks((C0, map(part, span))) for span in spans)


def weakened(count: int) -> Any:
    return note(NoteCode.WEAKENED, FIELD, str(count), "parts of two devices")


LISTED = [
    Row("M1 30", asking({RESOURCE: 30}), one(part(30)), written=Written(env={"c0": env((T4[0], 30), most_mib=4530)})),
    Row(
        "M1 30 in quotes",
        asking({RESOURCE: "30"}),
        one(part(30)),
        written=Written(env={"c0": env((T4[0], 30), most_mib=4530)}),
    ),
    Row("M1 1", asking({RESOURCE: 1}), one(part(1)), written=Written(env={"c0": env((T4[0], 1), most_mib=151)})),
    Row("M1 99", asking({RESOURCE: 99}), one(part(99)), written=Written(env={"c0": env((T4[0], 99), most_mib=14949)})),
    Row("M1 0", asking({RESOURCE: 0}), made(GpuRequest())),
    Row(
        "M1 in an init container",
        asking({}, init=[{RESOURCE: 30}]),
        made(asks((I0, [part(30)]))),
        written=Written(env={"i0": env((T4[0], 30), most_mib=4530)}),
    ),
    Row(
        "M1 beside a MIG slice",
        asking({RESOURCE: 30, "nvidia.com/mig-1g.5gb": 1}),
        one(part(30), MigAsk("1g.5gb")),
        written=Written(env={"c0": env((T4[0], 30), most_mib=4530)}),
    ),
    Row(
        "M1 beside a whole GPU",
        asking({RESOURCE: 30}, {"nvidia.com/gpu": 1}),
        (Mistake.CONFLICTING, "nvidia.com/gpu of container side"),
    ),
    Row("M2 a whole device (lowest free index remains)", asking({RESOURCE: 100}), one(WholeAsk(), edits=counted(1))),
    Row("M2 beside the same count", asking({RESOURCE: 100, "nvidia.com/gpu": 1}), one(WholeAsk())),
    Row(
        "M2 beside another count",
        asking({RESOURCE: 100, "nvidia.com/gpu": 2}),
        (Mistake.CONFLICTING, "nvidia.com/gpu of container main"),
    ),
    Row(
        "M3 one and a half",
        asking({RESOURCE: 150}),
        one(FULL, part(50)),
        written=Written(env={"c0": env((T4[0], 100), (T4[1], 50), most_mib=15100 + 7550)}),
    ),
    Row("M4 two", asking({RESOURCE: 200}), one(WholeAsk(), WholeAsk(), edits=counted(2))),
    Row("M4 two and a half", asking({RESOURCE: 250}), one(FULL, FULL, part(50))),
    Row(
        "M5 one card by default (waits)",
        asking({RESOURCE: 50}),
        one(part(50)),
        written=Written(env={"c0": env((T4[0], 50), most_mib=7550)}),
    ),
    Row(
        "M5 a share over two cards, where that is allowed",
        asking({RESOURCE: 5}),
        one(part(5), alternatives=cut([4, 1], [3, 2]), notes=weakened(5)),
        SPAN,
        Written(env={"c0": env((T4[0], 5), most_mib=755)}),
    ),
    Row(
        "M5 nothing to cut",
        asking({RESOURCE: 1}),
        one(part(1)),
        SPAN,
        Written(env={"c0": env((T4[0], 1), most_mib=151)}),
    ),
    Row(
        "M5 a whole device over two cards",
        asking({RESOURCE: 100}),
        one(FULL, alternatives=cut(*[[more, 100 - more] for more in range(99, 49, -1)]), notes=weakened(100)),
        SPAN,
        Written(env={"c0": env((T4[0], 100), most_mib=15100)}),
    ),
    Row(
        "M5 one and a half over the same number of cards first",
        asking({RESOURCE: 150}),
        one(
            FULL,
            part(50),
            alternatives=cut(
                *[[more, 150 - more] for more in range(99, 74, -1)],
                *[[100, more, 50 - more] for more in range(49, 24, -1)],
            ),
            notes=weakened(150),
        ),
        SPAN,
        Written(env={"c0": env((T4[0], 100), (T4[1], 50), most_mib=22650)}),
    ),
    Row(
        "M5 strict",
        asking({RESOURCE: 5}),
        one(part(5)),
        settings(strict=True, allow_span=True),
        Written(env={"c0": env((T4[0], 5), most_mib=755)}),
    ),
    Row("M6 more than a node has (waits)", asking({RESOURCE: 25600}), one(*[WholeAsk()] * 256, edits=counted(256))),
    Row("M6 more than any node has", asking({RESOURCE: 25601}), (Mistake.TOO_MANY, FIELD)),
    Row("M6 more than can be counted", asking({RESOURCE: 2**63 - 1}), (Mistake.TOO_MANY, FIELD)),
    *(
        Row(f"M7 {text} in a pod", asking({RESOURCE: text}), (Mistake.MALFORMED, FIELD))
        for text in ("0.5", "1.5", "-30", "x")
    ),
    Row(
        "M8 other units and another name",
        asking({"example.org/third": 4}),
        one(FULL, FractionAsk(333_333_333), unit=3),
        settings(units=3, resource="example.org/third"),
        Written(env={"c0": env((T4[0], 3), (T4[1], 1), most_mib=4 * 5036)}),
    ),
    Row(
        "M8 two units of seven",
        asking({RESOURCE: 2}),
        one(FractionAsk(285_714_285), unit=7),
        settings(units=7),
        Written(env={"c0": env((T4[0], 2), most_mib=2 * 2158)}),
    ),
    Row(
        "M9 the same card preferred",
        asking({RESOURCE: 30}, {RESOURCE: 40}),
        made(
            asks((C0, [part(30, "a")]), (C1, [part(40, "a")])), alternatives=(asks((C0, [part(30)]), (C1, [part(40)])),)
        ),
        written=Written(env={"c0": env((T4[0], 30), most_mib=4530), "c1": env((T4[0], 40), most_mib=6040)}),
    ),
    Row(
        "M9 too much for one card",
        asking({RESOURCE: 60}, {RESOURCE: 50}),
        made(asks((C0, [part(60)]), (C1, [part(50)]))),
        written=Written(env={"c0": env((T4[0], 60), most_mib=9060), "c1": env((T4[1], 50), most_mib=7550)}),
    ),
    Row(
        "M9 three containers on two cards or three",
        asking({RESOURCE: 30}, {RESOURCE: 40}, {RESOURCE: 50}),
        made(
            asks((C0, [part(30, "a")]), (C1, [part(40, "a")]), (C2, [part(50)])),
            alternatives=(
                asks((C0, [part(30, "a")]), (C1, [part(40)]), (C2, [part(50, "a")])),
                asks((C0, [part(30)]), (C1, [part(40, "a")]), (C2, [part(50, "a")])),
                asks((C0, [part(30)]), (C1, [part(40)]), (C2, [part(50)])),
            ),
        ),
        written=Written(
            env={
                "c0": env((T4[0], 30), most_mib=4530),
                "c1": env((T4[0], 40), most_mib=6040),
                "c2": env((T4[1], 50), most_mib=7550),
            }
        ),
    ),
    Row(
        "M9 a whole device and a part in another container",
        asking({RESOURCE: 100}, {RESOURCE: 40}),
        made(asks((C0, [FULL]), (C1, [part(40)]))),
        written=Written(env={"c0": env((T4[0], 100), most_mib=15100), "c1": env((T4[1], 40), most_mib=6040)}),
    ),
]

ROWS = [without(row, row.settings.metagpu.resource) for row in LISTED]
TRANSLATED = [row for row in ROWS if isinstance(row.expected, Translation)]


@parametrized(ROWS)
def test_a_row_of_the_table(row: Row) -> None:
    assert metagpu.speaks(row.pod, row.settings)
    holds(row, metagpu.translate)


@parametrized([row for row in TRANSLATED if len(row.expected.request.shared) <= len(T4)])  # type: ignore[union-attr]  # translated ones only
def test_apps_read_their_units_and_what_they_are_worth(row: Row) -> None:
    assert isinstance(row.expected, Translation)
    given_devices = T4[: len(row.expected.request.shared)]
    assert metagpu.written_back(row.expected, given_devices) == row.written


@parametrized(TRANSLATED)
def test_a_pod_that_was_through_admission_names_no_resource_that_no_node_has(row: Row) -> None:
    assert isinstance(row.expected, Translation)
    assert not metagpu.speaks(edited(row.pod, row.expected.edits), row.settings)


def test_other_resources_are_left_alone() -> None:
    assert not metagpu.speaks(asking({"nvidia.com/gpu": 1}, {"cnvrg.io/metagpus": 1}), DialectSettings())


def test_only_its_own_requests_name_units() -> None:
    whole = one(WholeAsk())
    assert metagpu.most_units(one(part(30)), [part(30)]) == 30
    assert metagpu.most_units(msgspec.structs.replace(whole, dialect="hami"), [part(30)]) == 0


def test_a_cut_of_many_devices_has_as_many_ways_as_the_scheduler_tries() -> None:
    answer = of_kind(Translation, metagpu.translate(asking({RESOURCE: 100 * 100 + 50}), SPAN))
    # A hundred whole devices and two parts.
    assert len(answer.alternatives) == MOST_TRIED // 102


@given(st.integers(1, 1000), st.sampled_from([3, 7, 10, 100, 1000]))
def test_a_cut_share_is_as_many_units_as_were_asked(count: int, units: int) -> None:
    answer = metagpu.translate(asking({RESOURCE: count}), settings(units=units, allow_span=True))
    if isinstance(answer, Refusal):
        assert count > 256 * units
        return
    assert len(answer.alternatives) <= MOST_ALTERNATIVES
    for request in (answer.request, *answer.alternatives):
        nano = [ask.nano for ask in request.shared if isinstance(ask, FractionAsk)]
        assert sum(-(-each * units // NANO_PER_DEVICE) for each in nano) + request.whole * units == count
        assert all(0 < each <= NANO_PER_DEVICE for each in nano)


@given(st.integers(1, 2000))
def test_as_many_units_as_a_device_has_fit_into_it(units: int) -> None:
    answer = of_kind(Translation, metagpu.translate(asking({RESOURCE: 1}), settings(units=units)))
    nano = sum(ask.nano for ask in answer.request.shared if isinstance(ask, FractionAsk)) or NANO_PER_DEVICE
    assert 0 <= NANO_PER_DEVICE - units * nano < units or units == 1


AMOUNTS = st.integers(-1, 300) | st.text("0123456789.mkie-", max_size=5) | st.floats(allow_nan=True)
LIMITS: st.SearchStrategy[Raw] = st.dictionaries(st.sampled_from([RESOURCE, "nvidia.com/gpu"]), AMOUNTS)
COUNTED: st.SearchStrategy[Raw] = st.dictionaries(st.just(RESOURCE), st.integers(0, 300))


@fuzzed
@given(st.lists(LIMITS | COUNTED, min_size=1, max_size=3), st.lists(LIMITS | COUNTED, max_size=1), st.booleans())
def test_whatever_is_written_the_answer_is_a_sound_request_or_a_refusal(
    limits: list[Raw], init: list[Raw], allow_span: bool
) -> None:
    asked, choices = asking(*limits, init=init), settings(allow_span=allow_span)
    answer = understood(lambda: metagpu.translate(asked, choices))
    if answer is None:
        return
    for request in (answer.request, *answer.alternatives):
        assert all(0 < ask.nano <= NANO_PER_DEVICE for ask in request.shared if isinstance(ask, FractionAsk))
        assert not (request.is_shared and request.whole)
        devices = [GivenDevice(f"GPU-{n}", n, 80000, 0) for n in range(len(request.shared))]
        back = metagpu.written_back(made(request), devices)
        assert set(back.env) == {c.container.key for c in request.containers if c.whole == 0}
