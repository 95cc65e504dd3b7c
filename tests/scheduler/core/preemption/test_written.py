"""The record of nominations: what is written is read back, and nothing else is taken for a nomination."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.bind_request import PlannedDevice
from scheduler.core.convert.owners import identity
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Action, Evicted, FailedClaim, Moved, Nomination, Place, Victim
from scheduler.core.preemption import nomination_record
from scheduler.core.preemption.nomination_record import (
    MOST_CLAIMS,
    MOST_TIMES,
    Record,
    Texts,
    evictions,
    joined_claims,
    pods_of,
    read,
    read_claims,
    without,
    written_claims,
)
from tests.fuzzing import fuzzed
from tests.whole import examples
from wire.core import OwnerReference

NOW_S = 1_800_000_000
_words = st.text(min_size=1, max_size=12)
_uids = st.uuids().map(str) | st.binary(min_size=16, max_size=16).map(bytes.hex) | _words
_devices = st.builds(
    PlannedDevice,
    group=st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
    nano=st.integers(1, 10**9),
    mem_mib=st.integers(0, 10**6),
    mode=st.sampled_from(["", "mps"]),
    compute_percent=st.integers(0, 100),
)
_places = st.builds(
    Place, _uids, _words, st.lists(_devices, max_size=2).map(tuple), st.lists(_words, max_size=2).map(tuple)
)
_victims = st.builds(
    Victim, pod_uid=_uids, namespace=_words, name=_words, node=_words, owner=_uids, past_budgets=st.booleans()
)
_amounts = st.integers(0, 2**40)
_demands = st.builds(
    Demand,
    cpu_milli=_amounts,
    mem_mib=_amounts,
    gpus=_amounts,
    extended=st.lists(st.tuples(_words, _amounts)).map(tuple),
)
_moved = st.builds(
    Moved,
    pod_uid=_uids,
    namespace=_words,
    owner=_uids,
    node=_words,
    demand=_demands,
    devices=st.lists(_devices, max_size=2).map(tuple),
)
_nominations = st.builds(
    Nomination,
    id=_words,
    action=st.sampled_from(Action),
    namespace=_words,
    pod_group=_words | st.just(""),
    number=st.integers(0, 2**40),
    places=st.lists(_places, min_size=1, max_size=3).map(tuple),
    victims=st.lists(_victims, max_size=3).map(tuple),  # none are left of one that was revised
    moved=st.lists(_moved, max_size=2).map(tuple),
)
_times = st.lists(st.integers(0, 2 * NOW_S), min_size=1, max_size=MOST_TIMES).map(lambda times: tuple(sorted(times)))


def _is_one_record(nominations: list[Nomination]) -> bool:
    pods = [uid for nomination in nominations for uid in pods_of(nomination)]
    return len(set(pods)) == len(pods) and len({nomination.id for nomination in nominations}) == len(nominations)


_records = st.builds(
    Record,
    st.lists(_nominations, max_size=4).filter(_is_one_record).map(tuple),
    st.dictionaries(_uids, _times, max_size=4),
    st.dictionaries(_words, st.integers(0, 2 * NOW_S), max_size=3),
)


def uid(number: int) -> str:
    return str(uuid.UUID(int=number))


def nomination(name: str = "a-0", *, first: int = 1, victims: int = 1, owner: str = "") -> Nomination:
    gone = tuple(
        Victim(pod_uid=uid(first + at), namespace="team", name=f"v{at}", node="n1", owner=owner or uid(first + at))
        for at in range(1, victims + 1)
    )
    return Nomination(id=name, action=Action.RECLAIM, namespace="team", places=(Place(uid(first), "n1"),), victims=gone)


def sent(record: Record) -> int:
    """Bytes of the record's text as a string of JSON, without its quotes."""
    return len(msgspec.json.encode(nomination_record.written(record))) - 2


@given(_records)
def test_what_is_written_is_read_back(record: Record) -> None:
    assert read(nomination_record.written(record)) == nomination_record.Reading(record)


@fuzzed
@given(st.binary() | st.text())
def test_whatever_stands_there_does_not_raise(text: bytes | str) -> None:
    read(text)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def _spoilt(draw: st.DrawFn) -> str:
    """A record with one value somewhere that is another one."""
    whole = json.loads(
        nomination_record.written(Record((nomination(victims=2), nomination("b-0", first=9)), {uid(1): (NOW_S,)}))
    )
    at: Any = whole
    while True:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
            at = at[key]
            continue
        at[key] = draw(_json)
        return json.dumps(whole)


@fuzzed
@given(_spoilt())
def test_what_is_read_of_a_spoilt_record_can_be_written_again(text: str) -> None:
    found = read(text).record
    assert read(nomination_record.written(found)).record == found


GOOD = json.loads(nomination_record.written(Record((nomination(),))))["nominations"][0]


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"id": ""}, "id: it must not be empty"),
        ({"action": "consolidate"}, "Invalid enum value"),
        ({"places": []}, "places: at least one is needed"),
        ({"number": -1}, "number: -1"),
        ({"until": 7}, "unknown field"),
        ({"places": [["x", "n1"]]}, "'x' is no UID"),
        ({"places": [["AAAAAAAAAAAAAAAAAAAAAB", "n1"]]}, "is no UID"),
        ({"places": [["AAAAAAAAAAAAAAAAAAAAAQ", ""]]}, "node: it must not be empty"),
        ({"places": [["AAAAAAAAAAAAAAAAAAAAAQ", "n1", [{"group": "g", "nano": 0}]]]}, "nano is 0"),
        ({"places": [["AAAAAAAAAAAAAAAAAAAAAQ", "n1", [{"group": "g", "nano": 1, "new": 1}]]]}, "new is not known"),
        ({"past_budgets": [1]}, "past_budgets: (1,)"),
        ({"victims": [["=", "team", "v", "n1", "=o"]]}, "is no UID"),
        ({"victims": [["AAAAAAAAAAAAAAAAAAAAAQ", "team", "v", "n1", "=o"]]}, "a pod is in it"),
    ],
)
def test_a_nomination_is_read_whole_or_not_at_all(change: dict[str, Any], because: str) -> None:
    other = json.loads(nomination_record.written(Record((nomination("b-0", first=9),))))["nominations"][0]
    found = read(msgspec.json.encode({"nominations": [{**GOOD, **change}, other], "evicted": {}}))
    assert [kept.id for kept in found.record.nominations] == ["b-0"]
    (said,) = found.unread
    assert said.startswith("nominations[0]: ")
    assert because in said


def test_of_two_nominations_that_have_one_pod_the_first_stands() -> None:
    text = msgspec.json.encode({"nominations": [GOOD, {**GOOD, "id": "c-0"}, GOOD], "evicted": {}})
    found = read(text)
    assert [kept.id for kept in found.record.nominations] == ["a-0"]
    assert len(found.unread) == 2


def test_a_uid_takes_22_characters() -> None:
    given_uid = "5e2b0f0c-6a7d-4e0f-9f55-0d4f1a2b3c4d"
    assert len(nomination_record.short(given_uid)) == 22
    assert nomination_record.short(given_uid.upper()) == f"={given_uid.upper()}"


def test_the_identity_of_an_owner_takes_23_characters() -> None:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="u")
    known = identity("team", owner)
    assert len(nomination_record.short(known)) == 23
    assert nomination_record.long(nomination_record.short(known)) == known


@pytest.mark.parametrize("text", ["~", "~=", "~AAAA", "~~AAAAAAAAAAAAAAAAAAAAAA", "~AAAAAAAAAAAAAAAAAAAAAB", "~=u"])
def test_what_nobody_writes_is_no_identity(text: str) -> None:
    with pytest.raises(ValueError, match="is no UID"):
        nomination_record.long(text)


def test_evictions_count_for_an_hour() -> None:
    record = Record(evicted={"job": (NOW_S, NOW_S + 60)})
    assert evictions(record, now_s=NOW_S + 60) == {"job": Evicted(2, NOW_S + 60)}
    assert evictions(record, now_s=NOW_S + 3600) == {"job": Evicted(1, NOW_S + 60)}
    assert evictions(record, now_s=NOW_S + 3660) == {}


def test_what_is_over_goes() -> None:
    left = without(Record((nomination("a-0"), nomination("b-0", first=9))), ["a-0", "x"])
    assert [kept.id for kept in left.nominations] == ["b-0"]


@pytest.mark.parametrize("amount", [-1, 2**53])
def test_a_place_of_a_successor_whose_amounts_nobody_writes_is_not_read(amount: int) -> None:
    moved = Moved(pod_uid=uid(7), namespace="team", owner=uid(8), node="n2", demand=Demand(gpus=1))
    text = nomination_record.written(Record((msgspec.structs.replace(nomination(), moved=(moved,)),)))
    assert read(text).record.nominations[0].moved == (moved,)
    changed = text.replace('"gpus":1', f'"gpus":{amount}')
    assert changed != text
    assert read(changed).record.nominations == ()


@settings(max_examples=examples(20))
@given(st.lists(_records, min_size=1, max_size=3))
def test_what_is_kept_as_text_of_the_last_record_changes_nothing(records: list[Record]) -> None:
    texts = Texts()
    for record in records:
        assert nomination_record.written(record, texts) == nomination_record.written(record)
        texts.keep(record.nominations, record.evicted.keys())


def test_what_stays_in_the_record_is_not_encoded_again() -> None:
    texts, stays = Texts(), nomination()
    record = Record((stays,), {uid(7): (1, 2)})
    nomination_record.written(record, texts)
    texts.keep(record.nominations, record.evicted.keys())
    before = texts.nomination(stays)[0], texts.owner(uid(7), (1, 2))[0]
    nomination_record.written(Record((stays, nomination("b-0", first=50)), {uid(7): (1, 2)}), texts)
    assert texts.nomination(stays)[0] is before[0]
    assert texts.owner(uid(7), (1, 2))[0] is before[1]
    assert texts.nomination(msgspec.structs.replace(stays, number=9))[0] != before[0]
    assert texts.owner(uid(7), (1, 2, 3))[0] != before[1]


# Claims that failed, as text beside the record of nominations.

UID = "0b9c2f6e-5f0d-4d0e-8c1e-2f6f5a0c7f11"
FAILED = st.builds(FailedClaim, st.integers(1, 2**31 - 1), st.integers(0, 2**53 - 1))


@given(st.dictionaries(st.uuids().map(str) | st.text(min_size=1), FAILED, max_size=5))
def test_what_is_written_is_read(claims: dict[str, FailedClaim]) -> None:
    assert read_claims(written_claims(claims)) == (claims, ())


def test_a_claim_takes_less_than_50_bytes() -> None:
    assert len(written_claims({UID: FailedClaim(12, 1_795_000_000)})) < 50


def test_of_too_many_those_that_failed_last_are_written() -> None:
    claims = {f"c{number}": FailedClaim(1, number) for number in range(MOST_CLAIMS + 1)}
    assert [*read_claims(written_claims(claims))[0]] == [f"c{number}" for number in range(1, MOST_CLAIMS + 1)]


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("", 0),
        ("{}", 0),
        ("[]", 1),
        ("no", 1),
        ('{"=c":[1,2],"=d":[0,2],"=e":[1,-1],"=f":[1],"=g":[true,1],"=h":"x","":[1,2],"i":[1,2]}', 7),
    ],
)
def test_what_can_not_be_read_is_named_and_counts_for_nothing(text: str, unread: int) -> None:
    claims, told = read_claims(text)
    assert len(told) == unread
    assert claims == ({"c": FailedClaim(1, 2)} if "=c" in text else {})


@given(st.text() | st.binary().map(lambda each: each.decode("latin-1")))
def test_no_text_raises(text: str) -> None:
    read_claims(text)


def test_of_what_several_know_the_last_failure_counts() -> None:
    mine = {"a": FailedClaim(2, 50), "b": FailedClaim(1, 10)}
    theirs = {"c": FailedClaim(1, 20), "b": FailedClaim(2, 40), "a": FailedClaim(3, 45)}
    known = joined_claims((mine, theirs))
    assert [*known.items()] == [("c", theirs["c"]), ("b", theirs["b"]), ("a", mine["a"])]
