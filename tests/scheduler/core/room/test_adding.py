"""What is written of new intents: each namespace has room, whatever others take."""

from __future__ import annotations

import uuid

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.room import Action, Evicted, Intent, Place, Victim
from scheduler.core.room import written, written_hour
from scheduler.core.room.adding import SHARE, added
from scheduler.core.room.written import MOST_BYTES, MOST_TIMES, Record, Texts, evictions
from scheduler.core.room.written_hour import SPAN_S, Hour

NOW_S = 1_800_000_000 // SPAN_S * SPAN_S


def uid(number: int) -> str:
    return str(uuid.UUID(int=number))


def intent(number: int, *, taker: str = "team", victims: int = 1, members: int = 1, owner: str = "") -> Intent:
    """An intent that has nothing in common with those of other numbers."""
    first = number << 32
    gone = tuple(
        Victim(pod_uid=uid(each), namespace="others", name=f"v{each}", node="node-0001", owner=owner or uid(each))
        for each in range(first + members, first + members + victims)
    )
    places = tuple(Place(uid(first + each), "node-0001") for each in range(members))
    return Intent(id=f"{uid(first)}-0", action=Action.RECLAIM, namespace=taker, places=places, victims=gone)


def sent(text: str) -> int:
    """Bytes of a text as a string of JSON, without its quotes."""
    return len(msgspec.json.encode(text)) - 2


def sent_most(record: Record, hour: Hour) -> int:
    return max(sent(written.written(record)), *(sent(written_hour.written(each, Texts())) for each in hour.pieces))


def test_what_does_not_fit_waits_and_what_comes_after_it_may_fit() -> None:
    many = [intent(1), intent(2, victims=400), intent(3)]
    record, hour = added(Record(), Hour(), many, now_s=NOW_S, most_bytes=2000)
    assert record.intents == (many[0], many[2])
    assert sent_most(record, hour) <= 2000
    assert set(hour.evicted(NOW_S)) == {victim.owner for each in (many[0], many[2]) for victim in each.victims}


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from("abc")), max_size=12), st.integers(300, 12_000))
def test_the_bound_holds(wanted: list[tuple[int, str]], most_bytes: int) -> None:
    many = [intent(at, victims=count, taker=taker) for at, (count, taker) in enumerate(wanted)]
    assert sent_most(*added(Record(), Hour(), many, now_s=NOW_S, most_bytes=most_bytes)) <= most_bytes


@pytest.mark.parametrize(("members", "intents"), [(1, 2500), (8, 520), (64, 72)])
def test_so_many_intents_of_one_namespace_fit(members: int, intents: int) -> None:
    many = [intent(at, members=members, victims=members) for at in range(intents + 200)]
    record, _ = added(Record(), Hour(), many, now_s=NOW_S)
    assert intents <= len(record.intents) < intents + 200


@pytest.mark.parametrize("greedy", [1, 2, 10, 20])
def test_a_namespace_finds_room_however_many_take_all_that_they_can(greedy: int) -> None:
    record, hour = Record(), Hour()
    most_bytes = 200_000
    for taker in range(greedy):
        many = [intent(taker << 16 | at, taker=f"greedy-{taker}") for at in range(600 // (taker + 1))]
        record, hour = added(record, hour, many, now_s=NOW_S, most_bytes=most_bytes)
    assert sent(written.written(record)) > most_bytes * 0.7
    honest = intent(1 << 40, taker="honest")
    found, later = added(record, hour, [honest], now_s=NOW_S, most_bytes=most_bytes)
    assert found.intents == (*record.intents, honest)
    assert honest.victims[0].owner in later.evicted(NOW_S)


def test_of_one_greedy_namespace_a_quarter_stays_free() -> None:
    many = [intent(at, taker="greedy") for at in range(3000)]
    record, _ = added(Record(), Hour(), many, now_s=NOW_S)
    free = MOST_BYTES - sent(written.written(record))
    assert free >= MOST_BYTES * (SHARE[1] - SHARE[0]) // SHARE[1]


def test_evictions_of_an_hour_leave_room_for_others() -> None:
    """Each of 22,470 evictions is one more owner; those of a piece bound nobody else, and the next piece is empty."""
    record, hour = Record(), Hour()
    texts = Texts()
    for at in range(10):
        many = [intent(at << 16 | each, taker="greedy") for each in range(2_247)]
        _, hour = added(record, hour, many, now_s=NOW_S + 360 * at, texts=texts)
    now_s = NOW_S + 3599
    assert len(hour.evicted(now_s)) > 22_000
    assert max(sent(written_hour.written(each, texts)) for each in hour.pieces) < 400_000
    found, _ = added(record, hour, [intent(1 << 40, taker="honest")], now_s=now_s)
    assert len(found.intents) == 1


def test_an_eviction_changes_its_piece_alone() -> None:
    hour = Hour()
    for at in range(8):
        _, hour = added(Record(), hour, [intent(at)], now_s=NOW_S + at * SPAN_S)
    _, later = added(Record(), hour, [intent(99)], now_s=NOW_S + 7 * SPAN_S + 1)
    changed = [one is not other for one, other in zip(hour.pieces, later.pieces, strict=True)]
    assert sum(changed) == 1


def test_an_owner_is_evicted_once_by_an_intent_and_for_an_hour() -> None:
    hour = Hour()
    for at in range(20):
        _, hour = added(Record(), hour, [intent(at, victims=3, owner="job")], now_s=NOW_S + at * 60)
    now_s = NOW_S + 19 * 60

    def known(at_s: int) -> dict[str, Evicted]:
        return evictions(Record(evicted=hour.evicted(at_s)), now_s=at_s)

    assert known(now_s) == {"job": Evicted(MOST_TIMES, now_s)}
    assert known(NOW_S + 3600 + 18 * 60) == {"job": Evicted(1, now_s)}
    assert known(NOW_S + 3600 + 19 * 60) == {}


def test_a_take_is_noted_once_and_only_where_others_lose() -> None:
    mine = msgspec.structs.replace(intent(1), namespace="others")
    _, hour = added(Record(), Hour(), [mine, intent(2), intent(2)], now_s=NOW_S)
    of = hour.at(NOW_S).of
    assert [len(of[taker].takes) for taker in ("others", "team")] == [0, 1]
    _, later = added(Record(), hour, [intent(2)], now_s=NOW_S + SPAN_S)
    assert later.at(NOW_S + SPAN_S).of["team"].takes == {}
