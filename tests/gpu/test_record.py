"""The native record of a pod's request: what is written is read, and what is not one is none."""

from __future__ import annotations

import json
from typing import Any

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
    WholeAsk,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Cards, Note, NoteCode, Translation, Wishes
from wire.core import Container, PodSpec

HALF = NANO_PER_DEVICE // 2
MAIN, SECOND = ContainerRef(ContainerKind.REGULAR, 0, "main"), ContainerRef(ContainerKind.REGULAR, 1, "second")


def one(*containers: ContainerRequest, **said: Any) -> Translation:
    return Translation(dialect="kai", request=GpuRequest(containers), **said)


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
            {
                "container": "c1",
                "name": "second",
                "memMib": 5120,
                "limitMib": 8192,
                "seat": "a",
                "computePercent": 30,
            },
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
    found = record.read(text)
    assert found is not None
    assert found.request.containers[0].asks == (ask,)
    assert json.loads(record.render(found)) == json.loads(text)


def test_parts_of_two_kinds_of_slices_are_on_no_seat_together() -> None:
    asks = [{"container": "c0", "nano": HALF, "seat": "a", "mig": profile} for profile in ("1g.5gb", "3g.20gb")]
    assert record.read(json.dumps({"version": 1, "dialect": "replicas", "asks": asks})) is None


_seats = st.sampled_from(["", "a"])
_fractions = st.builds(
    FractionAsk,
    st.integers(1, NANO_PER_DEVICE // 8),
    seat=_seats,
    index=st.integers(-1, 7),
    compute_percent=st.integers(0, 100),
    limit_nano=st.integers(0, NANO_PER_DEVICE),
)
_memory = st.builds(MemoryAsk, st.integers(1, 10**6), limit_mib=st.integers(0, 10**6))
_profiles = st.sampled_from(["1g.5gb", "3g.20gb"])
_mig = st.builds(MigAsk, _profiles)
_parts_of_slices = st.builds(FractionAsk, st.integers(1, NANO_PER_DEVICE), profile=_profiles)
_asks = st.lists(
    st.one_of(_fractions, _memory, _mig, _parts_of_slices, st.just(WholeAsk())), min_size=1, max_size=4
).map(tuple)
_requests = st.lists(
    st.tuples(st.sampled_from(ContainerKind), st.integers(0, 99), _asks, st.booleans()),
    max_size=3,
    unique_by=lambda made: made[:2],
).map(
    lambda made: GpuRequest(
        tuple(ContainerRequest(ContainerRef(kind, index), asks, sidecar) for kind, index, asks, sidecar in made)
    )
)


@given(
    request=_requests,
    alternatives=st.lists(_requests, max_size=2).map(tuple),
    cards=st.builds(Cards, products=st.lists(st.text(max_size=8), max_size=2).map(tuple)),
)
def test_what_is_written_is_read(request: GpuRequest, alternatives: tuple[GpuRequest, ...], cards: Cards) -> None:
    said = Translation(dialect="hami", request=request, alternatives=alternatives, cards=cards, strategy="spread")
    assert record.read(record.render(said)) == said


ASK = {"container": "c0", "nano": HALF}


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
        {},
    ],
    ids=str,
)
def test_what_can_not_be_is_no_record(asks: Any) -> None:
    assert record.read(json.dumps({"version": 1, "dialect": "kai", "asks": [ASK]})) is not None
    assert record.read(json.dumps({"version": 1, "dialect": "kai", "asks": asks})) is None


@pytest.mark.parametrize(("unit", "is_read"), [(0, True), (1024, True), (2**31 - 1, True), (-1, False), (2**31, False)])
def test_a_unit_is_a_sound_number(unit: int, is_read: bool) -> None:
    found = record.read(json.dumps({"version": 1, "dialect": "aliyun", "asks": [ASK], "unit": unit}))
    assert (found.unit if found else None) == (unit if is_read else None)


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
    assert record.read(json.dumps({"version": 1, "dialect": "kai", "asks": [ASK], **said})) is None


@pytest.mark.parametrize(("alternatives", "is_read"), [(0, True), (128, True), (129, False)])
def test_a_record_has_so_many_alternatives_at_most(alternatives: int, is_read: bool) -> None:
    text = json.dumps({"version": 1, "dialect": "hami", "asks": [ASK], "alternatives": [[ASK]] * alternatives})
    assert (record.read(text) is not None) is is_read


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
    assert (record.read(json.dumps(said)) is not None) is is_read


@pytest.mark.parametrize(("name", "is_there"), [("", True), ("main", True), ("other", False)])
def test_a_record_is_about_containers_of_these_names(name: str, is_there: bool) -> None:
    found = record.read(json.dumps({"version": 1, "dialect": "kai", "asks": [{**ASK, "name": name}]}))
    assert found is not None
    assert record.is_about(found, PodSpec(containers=[Container(name="main")])) is is_there


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "null", "\ud800", '{"version": 2, "dialect": "kai"}', '{"version": 1}']
)
def test_what_is_no_record_is_none(text: str | None) -> None:
    assert record.read(text) is None


def test_a_record_that_a_user_nests_deep_is_none() -> None:
    assert record.read('{"version": 1, "dialect": "kai", "x": ' + "[" * 50_000 + "]" * 50_000 + "}") is None


@given(st.text())
def test_any_text_is_a_record_or_none(text: str) -> None:
    record.read(text)
