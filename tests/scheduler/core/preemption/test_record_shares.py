"""What is written of new nominations: each namespace has room, whatever others take."""

from __future__ import annotations

import uuid
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.preemption import Action, Evicted, Nomination, Place, Victim
from scheduler.core.preemption import eviction_history, nomination_record
from scheduler.core.preemption.eviction_history import SPAN_S, Hour
from scheduler.core.preemption.nomination_record import MOST_BYTES, MOST_TIMES, Record, Texts, evictions
from scheduler.core.preemption.record_shares import SHARE, added
from tests.quick import few, few_rows

NOW_S = 1_800_000_000 // SPAN_S * SPAN_S


def uid(number: int) -> str:
    return str(uuid.UUID(int=number))


def nomination(number: int, *, taker: str = "team", victims: int = 1, members: int = 1, owner: str = "") -> Nomination:
    """A nomination that has nothing in common with those of other numbers."""
    first = number << 32
    gone = tuple(
        Victim(pod_uid=uid(each), namespace="others", name=f"v{each}", node="node-0001", owner=owner or uid(each))
        for each in range(first + members, first + members + victims)
    )
    places = tuple(Place(uid(first + each), "node-0001") for each in range(members))
    return Nomination(id=f"{uid(first)}-0", action=Action.RECLAIM, namespace=taker, places=places, victims=gone)


def sent(text: str) -> int:
    """Bytes of a text as a string of JSON, without its quotes."""
    return len(msgspec.json.encode(text)) - 2


def sent_most(record: Record, hour: Hour) -> int:
    return max(
        sent(nomination_record.written(record)),
        *(sent(eviction_history.written(each, Texts())) for each in hour.pieces),
    )


def test_what_does_not_fit_waits_and_what_comes_after_it_may_fit() -> None:
    many = [nomination(1), nomination(2, victims=400), nomination(3)]
    record, hour = added(Record(), Hour(), many, now_s=NOW_S, most_bytes=2000)
    assert record.nominations == (many[0], many[2])
    assert sent_most(record, hour) <= 2000
    assert set(hour.evicted(NOW_S)) == {victim.owner for each in (many[0], many[2]) for victim in each.victims}


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from("abc")), max_size=12), st.integers(300, 12_000))
def test_the_bound_holds(wanted: list[tuple[int, str]], most_bytes: int) -> None:
    many = [nomination(at, victims=count, taker=taker) for at, (count, taker) in enumerate(wanted)]
    assert sent_most(*added(Record(), Hour(), many, now_s=NOW_S, most_bytes=most_bytes)) <= most_bytes


@pytest.mark.parametrize(("members", "nominations"), few_rows([(1, 1660), (8, 340), (64, 46)], 3))
def test_so_many_nominations_of_one_namespace_fit(members: int, nominations: int) -> None:
    many = [nomination(at, members=members, victims=members) for at in range(nominations + 200)]
    record, _ = added(Record(), Hour(), many, now_s=NOW_S)
    assert nominations <= len(record.nominations) < nominations + 200


@pytest.mark.parametrize("greedy", few([1, 2, 10, 20], 2))
def test_a_namespace_finds_room_however_many_take_all_that_they_can(greedy: int) -> None:
    record, hour = Record(), Hour()
    most_bytes = 200_000
    for taker in range(greedy):
        many = [nomination(taker << 16 | at, taker=f"greedy-{taker}") for at in range(600 // (taker + 1))]
        record, hour = added(record, hour, many, now_s=NOW_S, most_bytes=most_bytes)
    assert sent(nomination_record.written(record)) > most_bytes * 0.45
    honest = nomination(1 << 40, taker="honest")
    found, later = added(record, hour, [honest], now_s=NOW_S, most_bytes=most_bytes)
    assert found.nominations == (*record.nominations, honest)
    assert honest.victims[0].owner in later.evicted(NOW_S)


def test_of_one_greedy_namespace_half_stays_free() -> None:
    many = [nomination(at, taker="greedy") for at in range(3000)]
    record, _ = added(Record(), Hour(), many, now_s=NOW_S)
    free = MOST_BYTES - sent(nomination_record.written(record))
    assert free >= MOST_BYTES * (SHARE[1] - SHARE[0]) // SHARE[1]


@cache
def greedy() -> tuple[Record, Hour]:
    """One namespace has filled its share of the nominations, and of the piece of this time."""
    texts, many = Texts(), [nomination(at, taker="greedy", victims=20 if at < 400 else 1) for at in range(450)]
    record, hour = added(Record(), Hour(), many, now_s=NOW_S, texts=texts)
    for at in range(1, 6):
        more = [nomination(at << 16 | each, taker="greedy", victims=20) for each in range(200)]
        _, hour = added(Record(), hour, more, now_s=NOW_S, texts=texts)
    return record, hour


@pytest.mark.parametrize(("members", "victims"), few_rows([(1, 700), (600, 600), (100, 800)], 3))
def test_a_large_nomination_fits_beside_one_greedy_namespace(members: int, victims: int) -> None:
    """The sizes that record_shares.py promises."""
    record, hour = greedy()
    assert added(record, Hour(), [nomination(9 << 16, taker="greedy", victims=2)], now_s=NOW_S)[0] == record
    assert added(Record(), hour, [nomination(9 << 16, taker="greedy", victims=20)], now_s=NOW_S)[0] == Record()
    honest = nomination(1 << 40, taker="honest", members=members, victims=victims)
    assert honest in added(record, hour, [honest], now_s=NOW_S)[0].nominations


def revised(before: Nomination, *, victims: int) -> Nomination:
    """Another version of a nomination, with victims of its own."""
    other = nomination(int(uuid.UUID(before.places[0].pod_uid)) >> 32, taker=before.namespace, victims=victims + 1)
    return msgspec.structs.replace(other, id=before.id, victims=other.victims[1:])


@pytest.mark.parametrize(("victims", "is_written"), [(20, True), (21, False)])
def test_a_revision_takes_the_place_of_the_version_on_record_or_leaves_it_there(victims: int, is_written: bool) -> None:
    record, _ = greedy()
    others = [nomination(1 << 20 | at, taker="others", victims=20) for at in range(40)]
    record, hour = added(record, Hour(), others, now_s=NOW_S)
    before = record.nominations[5]
    after = revised(before, victims=victims)
    assert (
        before not in added(nomination_record.without(record, [before.id]), hour, [before], now_s=NOW_S)[0].nominations
    )
    found, _ = added(record, hour, [after], now_s=NOW_S + SPAN_S)
    assert found.nominations[5] == (after if is_written else before)
    assert len(found.nominations) == len(record.nominations)


@pytest.mark.parametrize(("victims", "is_written"), [(1, True), (2000, False)])
def test_nobody_has_a_victim_that_a_version_on_record_names(victims: int, is_written: bool) -> None:
    before = nomination(1)
    record, hour = added(Record(), Hour(), [before], now_s=NOW_S, most_bytes=10_000)
    other = msgspec.structs.replace(nomination(2), victims=before.victims)
    wanted = [other, revised(before, victims=victims)]
    found, _ = added(record, hour, wanted, now_s=NOW_S, most_bytes=10_000)
    assert found.nominations == ((wanted[1], other) if is_written else (before,))


@pytest.mark.thorough
def test_evictions_of_an_hour_leave_room_for_others() -> None:
    """Each of 22,470 evictions is one more owner; those of a piece bound nobody else, and the next piece is empty."""
    record, hour = Record(), Hour()
    texts = Texts()
    for at in range(15):
        many = [nomination(at << 16 | each, taker="greedy") for each in range(1_498)]
        _, hour = added(record, hour, many, now_s=NOW_S + 240 * at, texts=texts)
    now_s = NOW_S + 3599
    assert len(hour.evicted(now_s)) > 22_000
    assert max(sent(eviction_history.written(each, texts)) for each in hour.pieces) < 450_000
    found, _ = added(record, hour, [nomination(1 << 40, taker="honest")], now_s=now_s)
    assert len(found.nominations) == 1


def test_an_eviction_changes_its_piece_alone() -> None:
    hour = Hour()
    for at in range(8):
        _, hour = added(Record(), hour, [nomination(at)], now_s=NOW_S + at * SPAN_S)
    _, later = added(Record(), hour, [nomination(99)], now_s=NOW_S + 7 * SPAN_S + 1)
    changed = [one is not other for one, other in zip(hour.pieces, later.pieces, strict=True)]
    assert sum(changed) == 1


def test_an_owner_is_evicted_once_by_a_nomination_and_for_an_hour() -> None:
    hour = Hour()
    for at in range(20):
        _, hour = added(Record(), hour, [nomination(at, victims=3, owner="job")], now_s=NOW_S + at * 60)
    now_s = NOW_S + 19 * 60

    def known(at_s: int) -> dict[str, Evicted]:
        return evictions(Record(evicted=hour.evicted(at_s)), now_s=at_s)

    assert known(now_s) == {"job": Evicted(MOST_TIMES, now_s)}
    assert known(NOW_S + 3600 + 18 * 60) == {"job": Evicted(1, now_s)}
    assert known(NOW_S + 3600 + 19 * 60) == {}


def test_a_take_is_noted_once_and_only_where_others_lose() -> None:
    mine = msgspec.structs.replace(nomination(1), namespace="others")
    _, hour = added(Record(), Hour(), [mine, nomination(2), nomination(2)], now_s=NOW_S)
    of = hour.at(NOW_S).of
    assert [len(of[taker].takes) for taker in ("others", "team")] == [0, 1]
    _, later = added(Record(), hour, [nomination(2)], now_s=NOW_S + SPAN_S)
    assert later.at(NOW_S + SPAN_S).of["team"].takes == {}
