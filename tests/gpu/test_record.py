"""The native record of a pod's request: what is written is read, and what is not one is none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import record
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    SharedAsk,
    WholeAsk,
    would_hide,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Cards, Note, NoteCode, Refusal, Translation, Wishes, told
from tests.fuzzing import fuzzed
from tests.values import of_kind
from wire.core import Container, PodSpec

HALF = NANO_PER_DEVICE // 2
MAIN, SECOND = ContainerRef(ContainerKind.REGULAR, 0, "main"), ContainerRef(ContainerKind.REGULAR, 1, "second")


def one(*containers: ContainerRequest, **said: Any) -> Translation:
    return Translation(dialect="kai", request=GpuRequest(containers), **said)


def refusal(said: dict[str, Any]) -> Refusal:
    return of_kind(Refusal, record.read(json.dumps(said)))


def test_a_record_says_in_words_what_is_asked() -> None:
    translation = one(
        ContainerRequest(MAIN, (FractionAsk(HALF), FractionAsk(HALF))),
        ContainerRequest(SECOND, (MemoryAsk(5120, limit_mib=8192, seat="a", compute_percent=30),)),
        wishes=Wishes(memory_cap=True),
        notes=(Note(NoteCode.COUNT_DROPPED, "nvidia.com/gpu", "4", "0.5"),),
    )
    assert json.loads(record.render(translation)) == {
        "version": 1,
        "dialect": "kai",
        "asks": [
            {"container": "c0", "name": "main", "count": 2, "nano": HALF},
            {"container": "c1", "name": "second", "memMib": 5120, "limitMib": 8192, "seat": "a", "computePercent": 30},
        ],
        "wishes": {"memoryCap": True},
        "notes": [{"code": "count-dropped", "field": "nvidia.com/gpu", "value": "4", "instead": "0.5"}],
    }


@pytest.mark.parametrize(
    ("said", "ask"),
    [
        ({"mig": "1g.5gb"}, MigAsk("1g.5gb")),
        ({"mig": "1g.5gb", "nano": HALF}, FractionAsk(HALF, profile="1g.5gb")),
        ({"mig": "1g.5gb", "nano": NANO_PER_DEVICE}, FractionAsk(NANO_PER_DEVICE, profile="1g.5gb")),
    ],
    ids=["a slice of the plugin's", "a part", "a whole one in our books"],
)
def test_a_slice_is_said_by_its_profile(said: dict[str, Any], ask: Ask) -> None:
    text = json.dumps({"version": 1, "dialect": "replicas", "asks": [{"container": "c0", **said}]})
    found = of_kind(Translation, record.read(text))
    assert found.request.containers[0].asks == (ask,)
    assert json.loads(record.render(found)) == json.loads(text)


def test_parts_of_two_kinds_of_slices_are_on_no_seat_together() -> None:
    asks = [{"container": "c0", "nano": HALF, "seat": "a", "mig": profile} for profile in ("1g.5gb", "3g.20gb")]
    refused = refusal({"version": 1, "dialect": "replicas", "asks": asks})
    assert refused.field == "moorage.dev/gpu: seat"


_seats = st.sampled_from(["", "a"])
_fractions = st.builds(
    FractionAsk,
    st.integers(1, NANO_PER_DEVICE // 8),
    seat=_seats,
    index=st.integers(-1, 7),
    compute_percent=st.integers(0, 8),
    limit_nano=st.integers(0, NANO_PER_DEVICE),
).map(lambda ask: msgspec.structs.replace(ask, index=-1) if ask.seat else ask)
_memory = st.builds(MemoryAsk, st.integers(1, 10**6), limit_mib=st.integers(0, 10**6))
_profiles = st.sampled_from(["1g.5gb", "3g.20gb"])
_mig = st.builds(MigAsk, _profiles)
_parts_of_slices = st.builds(FractionAsk, st.integers(1, NANO_PER_DEVICE), profile=_profiles)
_asks = (
    st.lists(st.one_of(_fractions, _memory, _mig, _parts_of_slices, st.just(WholeAsk())), min_size=1, max_size=4)
    .map(tuple)
    .filter(lambda asks: not would_hide(asks))
)
_requests = st.lists(
    st.tuples(st.sampled_from(ContainerKind), st.integers(0, 99), _asks, st.booleans()),
    max_size=3,
    unique_by=lambda made: made[:2],
).map(
    lambda made: GpuRequest(
        tuple(ContainerRequest(ContainerRef(kind, index), asks, sidecar) for kind, index, asks, sidecar in made)
    )
)


def of_other_shares(request: GpuRequest, nano: int) -> GpuRequest:
    """The same whole devices for the same containers, and of shares one of another size for all of each container."""
    other = FractionAsk(nano)
    return GpuRequest(
        tuple(
            msgspec.structs.replace(
                asking,
                asks=(
                    *(ask for ask in asking.asks if not isinstance(ask, SharedAsk)),
                    *[other] * any(isinstance(ask, SharedAsk) for ask in asking.asks),
                ),
            )
            for asking in request.containers
        )
    )


@given(
    request=_requests,
    others=st.lists(st.integers(1, NANO_PER_DEVICE), max_size=2),
    cards=st.builds(Cards, products=st.lists(st.text(max_size=8), max_size=2).map(tuple)),
)
def test_what_is_written_is_read(request: GpuRequest, others: list[int], cards: Cards) -> None:
    alternatives = tuple(of_other_shares(request, nano) for nano in others)
    said = Translation(dialect="hami", request=request, alternatives=alternatives, cards=cards, strategy="spread")
    assert record.read(record.render(said)) == said


ASK = {"container": "c0", "nano": HALF}
SMALL = {"container": "c0", "nano": 1}


@pytest.mark.parametrize(
    "asks",
    [
        [{**ASK, "container": "x0"}],
        [{**ASK, "container": "c01"}],
        [{**ASK, "container": "c-1"}],
        [{**ASK, "nano": -1}],
        [{**ASK, "nano": NANO_PER_DEVICE + 1}],
        [{**ASK, "nano": 0.5}],
        [{**ASK, "count": 0}],
        [{**ASK, "count": 257}],
        [{**ASK, "count": 200}, {**ASK, "count": 57}],
        [{**ASK, "memMib": 5}],
        [{"container": "c0", "memMib": -5}],
        [{**ASK, "computePercent": -1}],
        [{**ASK, "nano": NANO_PER_DEVICE, "seat": "a"}, {**ASK, "container": "c1", "seat": "a"}],
        [{**ASK, "seat": "a"}, {"container": "c1", "memMib": 5, "seat": "a"}],
        [{**SMALL, "computePercent": 60, "seat": "a"}, {**SMALL, "container": "c1", "computePercent": 41, "seat": "a"}],
        {},
    ],
    ids=str,
)
def test_what_can_not_be_is_no_record(asks: Any) -> None:
    assert isinstance(record.read(json.dumps({"version": 1, "dialect": "kai", "asks": [ASK]})), Translation)
    assert refusal({"version": 1, "dialect": "kai", "asks": asks}).allowed


SLICE = {"container": "c0", "mig": "1g.5gb"}
PART = {**SLICE, "nano": HALF}
A_WORD = "at most 63 of A-Z, a-z, 0-9, ., _, + and -"
ON_A_SEAT = "asks of one unit, one profile and one index on each seat"


@pytest.mark.parametrize(
    ("asks", "field", "value", "allowed"),
    [
        (
            [{**ASK, "limitMib": 5}],
            "limitMib of c0",
            "5",
            "a share by nano: nano, seat, index, computePercent, limitNano, mig",
        ),
        ([{**ASK, "memMib": 5}], "memMib of c0", "5", "a share by nano"),
        ([{"container": "c0", "memMib": 5, "limitNano": 7}], "limitNano of c0", "7", "a share by memMib"),
        ([{"container": "c1", "computePercent": 30}], "computePercent of c1", "30", "a whole device: no amount"),
        ([{"container": "c0", "index": 3}], "index of c0", "3", "a whole device: no amount"),
        ([{**SLICE, "computePercent": 30}], "computePercent of c0", "30", "a whole MIG slice: mig"),
        ([{**SLICE, "memMib": 5}], "memMib of c0", "5", "a whole MIG slice: mig"),
        ([{**PART, "limitMib": 5}], "limitMib of c0", "5", "a share by nano"),
        ([{**ASK, "computePercent": 101}], "computePercent of c0", "101", "0 to 100"),
        ([{**ASK, "index": 256}], "index of c0", "256", "-1 to 255"),
        ([{**ASK, "seat": "\x1b[2J"}], "seat of c0", "\x1b[2J", A_WORD),
        ([{**ASK, "seat": "a\n"}], "seat of c0", "a\n", A_WORD),
        ([{**ASK, "seat": "a" * 64}], "seat of c0", "a" * 64, A_WORD),
        ([{**SLICE, "mig": "1g\x07"}], "mig of c0", "1g\x07", A_WORD),
        (
            [{**ASK, "seat": "a", "index": 0}, {"container": "c1", "nano": 1, "seat": "a", "index": 1}],
            "seat",
            "seat a: a device has one index",
            ON_A_SEAT,
        ),
        ([{**ASK, "container": "\x1bc0"}], "container", "\x1bc0", "c0 to c9999, i0 to i9999"),
    ],
)
def test_what_would_be_dropped_is_refused_with_what_is_allowed(
    asks: list[dict[str, Any]], field: str, value: str, allowed: str
) -> None:
    """A cap on the compute of a whole device was taken and never given; of two indexes of a seat the first counted."""
    refused = refusal({"version": 1, "dialect": "kai", "asks": asks})
    assert (refused.field, refused.value) == (f"moorage.dev/gpu: {field}", value)
    assert allowed in refused.allowed
    assert told(refused).isprintable()


BOTH = "shares, and whole GPUs or slices of the device plugin, in containers of their own"


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("asks", "is_read"),
    [
        ([ASK, {"container": "c0"}], False),
        ([{"container": "c0", "memMib": 5}, {"container": "c0"}], False),
        ([PART, SLICE], False),
        ([PART, {"container": "c0"}], False),
        ([ASK, {"container": "c1"}], True),
        ([PART, {**SLICE, "container": "c1"}], True),
        ([ASK, {**ASK, "nano": NANO_PER_DEVICE}], True),
        ([SLICE, {"container": "c0"}], True),
    ],
)
def test_a_container_asks_for_shares_or_for_what_the_plugin_gives(
    asks: list[dict[str, Any]], is_read: bool, order: int
) -> None:
    """One variable says what it sees, and kubelet's loses: it had a whole GPU that nobody else got, and did not see."""
    said = {"version": 1, "dialect": "kai", "asks": asks[::order]}
    if is_read:
        assert isinstance(record.read(json.dumps(said)), Translation)
        return
    refused = refusal(said)
    assert refused.field == "moorage.dev/gpu: asks of c0"
    assert refused.value.startswith('[{"container":"c0"')
    assert BOTH in refused.allowed


@pytest.mark.parametrize("said", [{"computePercent": 30}, {"limitNano": NANO_PER_DEVICE}, {"seat": "a"}, {"index": 3}])
def test_a_part_of_a_slice_is_a_share_like_any(said: dict[str, Any]) -> None:
    text = json.dumps({"version": 1, "dialect": "replicas", "asks": [{**PART, **said}]})
    found = of_kind(Translation, record.read(text))
    assert isinstance(found.request.containers[0].asks[0], FractionAsk)
    assert json.loads(record.render(found)) == json.loads(text)


@pytest.mark.parametrize(("count", "is_read"), [(1, True), (256, True), (0, False), (-1, False), (257, False)])
def test_a_count_is_of_devices_that_a_container_can_be_given(count: int, is_read: bool) -> None:
    found = record.read(json.dumps({"version": 1, "dialect": "kai", "asks": [{**ASK, "count": count}]}))
    assert isinstance(found, Translation) is is_read


@pytest.mark.parametrize(("percents", "is_read"), [((100, 0), True), ((60, 40), True), ((60, 41), False)])
def test_compute_on_one_seat_is_all_of_the_device_at_most(percents: tuple[int, int], is_read: bool) -> None:
    asks = [
        {"container": f"c{number}", "memMib": 5, "seat": "a", "computePercent": percent}
        for number, percent in enumerate(percents)
    ]
    found = record.read(json.dumps({"version": 1, "dialect": "aliyun", "asks": asks}))
    assert isinstance(found, Translation) is is_read


@pytest.mark.parametrize(("unit", "is_read"), [(0, True), (1024, True), (2**31 - 1, True), (-1, False), (2**31, False)])
def test_a_unit_is_a_sound_number(unit: int, is_read: bool) -> None:
    found = record.read(json.dumps({"version": 1, "dialect": "aliyun", "asks": [ASK], "unit": unit}))
    assert (found.unit if isinstance(found, Translation) else None) == (unit if is_read else None)


@pytest.mark.parametrize(
    "said",
    [
        {"dialect": ""},
        {"dialect": "\x1b[31mkai"},
        {"dialect": "k" * 32},
        {"notes": [{"code": "no-effect", "field": "a\nb", "value": ""}]},
        {"notes": [{"code": "no-effect", "field": "a", "value": "", "instead": "\x1b[2J"}]},
        {"notes": [{"code": "unheard-of", "field": "a", "value": ""}]},
    ],
)
def test_what_is_shown_to_people_holds_nothing_for_their_terminals(said: dict[str, Any]) -> None:
    assert told(refusal({"version": 1, "dialect": "kai", "asks": [ASK], **said})).isprintable()


@pytest.mark.parametrize(
    ("asks", "other", "wrong"),
    [
        ([ASK], [{**ASK, "nano": 1}], ""),
        ([{**ASK, "count": 2}], [{**ASK, "nano": NANO_PER_DEVICE}], ""),
        ([ASK], [{"container": "c0", "memMib": 5}], ""),
        ([ASK], [PART], ""),
        ([PART], [{**PART, "count": 2}], ""),
        ([ASK, {**SLICE, "container": "c1"}], [PART, {**SLICE, "container": "c1"}], ""),
        ([{"container": "c0"}, {**ASK, "container": "c1"}], [{**ASK, "container": "c1"}, {"container": "c0"}], ""),
        ([ASK], [{**ASK, "container": "c1"}], "c0"),
        ([ASK], [ASK, {**ASK, "container": "c1"}], "c1"),
        ([ASK], [], "c0"),
        ([], [ASK], "c0"),
        ([ASK], [{"container": "c0"}], "c0"),
        ([{"container": "c0"}], [ASK], "c0"),
        ([{"container": "c0"}], [{"container": "c0", "count": 2}], "c0"),
        ([ASK, {"container": "c1"}], [ASK], "c1"),
        ([PART], [SLICE], "c0"),
        ([SLICE], [PART], "c0"),
        ([SLICE], [{**SLICE, "count": 2}], "c0"),
        ([SLICE], [{**SLICE, "mig": "3g.20gb"}], "c0"),
        ([SLICE], [{"container": "c0"}], "c0"),
        ([ASK, SLICE], [ASK], "c0"),
    ],
)
def test_alternatives_are_for_what_admission_made_ready(asks: Any, other: Any, wrong: str) -> None:
    """A pod was bound without a device or a charge where an alternative was a GPU that nobody asked the plugin for."""
    found = record.read(json.dumps({"version": 1, "dialect": "hami", "asks": asks, "alternatives": [asks, other]}))
    if not wrong:
        assert isinstance(found, Translation)
        return
    assert isinstance(found, Refusal)
    assert found.field == f"moorage.dev/gpu: alternatives[1] of {wrong}"
    assert json.loads(found.value) == [ask for ask in other if ask["container"] == wrong]
    assert found.allowed == "shares for the containers that have them in asks, and the same whole GPUs and MIG slices"


@pytest.mark.parametrize(("alternatives", "is_read"), [(0, True), (128, True), (129, False)])
def test_a_record_has_so_many_alternatives_at_most(alternatives: int, is_read: bool) -> None:
    text = json.dumps({"version": 1, "dialect": "hami", "asks": [ASK], "alternatives": [[ASK]] * alternatives})
    assert isinstance(record.read(text), Translation) is is_read


@pytest.mark.parametrize(
    ("asks", "alternatives", "is_read"),
    [
        ([256, 128], [], True),
        ([256, 129], [], False),
        ([1], [[256, 129]], False),
        ([256], [[256]] * 31, True),
        ([256], [[256]] * 32, False),
    ],
)
def test_a_record_asks_for_so_many_devices_at_most(
    asks: list[int], alternatives: list[list[int]], is_read: bool
) -> None:
    """The scheduler reads it with each event of its pod: one of 200,000 characters took it five seconds."""

    def listed(counts: list[int]) -> list[Any]:
        return [{"container": f"c{n}", "count": count, "nano": 1} for n, count in enumerate(counts)]

    said = {"version": 1, "dialect": "hami", "asks": listed(asks), "alternatives": [*map(listed, alternatives)]}
    assert isinstance(record.read(json.dumps(said)), Translation) is is_read


@pytest.mark.parametrize(("longest", "is_remembered"), [(1, True), (16 * 1024, False)])
def test_equal_records_are_read_once_but_for_very_long_ones(longest: int, is_remembered: bool) -> None:
    """Pods of one job have equal ones, and each is seen several times; what users write must not fill the memory."""
    note = {"code": "no-effect", "field": "f", "value": "v" * longest}
    text = json.dumps({"version": 1, "dialect": "hami", "asks": [ASK], "notes": [note]})
    assert isinstance(record.read(text), Translation)
    assert (record.read(text) is record.read(text)) is is_remembered
    assert record.read(text) == record.read_anew(text)


@pytest.mark.parametrize(("name", "is_there"), [("", True), ("main", True), ("other", False)])
def test_a_record_is_about_containers_of_these_names(name: str, is_there: bool) -> None:
    found = record.read(json.dumps({"version": 1, "dialect": "kai", "asks": [{**ASK, "name": name}]}))
    assert isinstance(found, Translation)
    assert record.is_about(found, PodSpec(containers=[Container(name="main")])) is is_there


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "\ud800", '{"version": 2, "dialect": "kai"}', '{"version": 1}']
)
def test_what_is_no_record_is_refused(text: str) -> None:
    found = of_kind(Refusal, record.read(text))
    assert found.allowed == "a record of version 1 or 2, as docs/reference/record.md says"


def test_a_record_that_a_user_nests_deep_is_refused() -> None:
    deep = '{"version": 1, "dialect": "kai", "x": ' + "[" * 50_000 + "]" * 50_000 + "}"
    assert isinstance(record.read(deep), Refusal)


@fuzzed
@given(st.text())
def test_any_text_is_a_record_or_refused(text: str) -> None:
    record.read(text)
