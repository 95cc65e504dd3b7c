"""Takes: a namespace that gives up what others are evicted for waits, and one that keeps it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from scheduler.core.model.device_requests import Backed, DeviceNeed
from scheduler.core.model.preemption import FailedClaim
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.extended_claims import made_uid
from scheduler.core.preemption.eviction_history import (
    KEPT_S,
    MOST,
    SPAN_S,
    WHOLE,
    Counts,
    Hour,
    Piece,
    Take,
    Taken,
    Takes,
    read,
    waits_until_s,
    written,
)
from scheduler.core.preemption.nomination_record import Texts
from scheduler.core.preemption.protection import ends_s, failed_again, next_end_s, paused_until_s
from tests.scheduler.core.objects import cluster, pod

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

NOW_S = 1_800_000_000 // SPAN_S * SPAN_S
OF_OTHERS: Mapping[str, int] = {"others": WHOLE}


def with_take(hour: Hour, at_s: int, *nominees: str, taker: str = "team", parts: Mapping[str, int] = OF_OTHERS) -> Hour:
    """The hour with one more take."""
    piece = hour.at(at_s)
    known = piece.of.get(taker, Taken())
    takes = {**known.takes, nominees[0]: Take(at_s, nominees, parts)}
    taken = Taken(known.evicted, takes, known.counts, known.last_s)
    return hour.put(Piece(piece.number, {**piece.of, taker: taken}))


def takes_of(hour: Hour) -> Takes:
    takes = Takes()
    takes.have(hour)
    return takes


def given_up(hour: Hour, at_s: int, name: str, *, taker: str = "team", parts: Mapping[str, int] = OF_OTHERS) -> Hour:
    """The hour with a take whose nominated pod was gone a moment later."""
    takes = takes_of(with_take(hour, at_s, name, taker=taker, parts=parts))
    assert takes.gone(name, at_s)
    return takes.hour()


@pytest.mark.parametrize(
    ("over", "wait_s"), [(-3, 0), (0, 0), (1, 0), (2, 30), (3, 60), (4, 120), (6, 480), (7, 600), (4000, 600)]
)
def test_the_wait_grows(over: int, wait_s: int) -> None:
    assert waits_until_s(over, NOW_S) == (NOW_S + wait_s if wait_s else 0)


def test_a_namespace_that_gives_up_twice_waits_and_no_other_one_does() -> None:
    hour = given_up(with_take(Hour(), NOW_S, "other", taker="other"), NOW_S, "p0")
    assert takes_of(hour).waits(NOW_S) == {}
    hour = given_up(hour, NOW_S + 1, "p1")
    assert takes_of(hour).waits(NOW_S + 1) == {"team": NOW_S + 31}
    assert takes_of(hour).waits(NOW_S + 31) == {}


@pytest.mark.parametrize("every_s", [1, 7, 45, 200, 300, 599])
def test_one_that_keeps_nothing_takes_at_most_so_often_in_any_hour(every_s: int) -> None:
    """It takes as soon as it may, and gives up at once: the hour is written and read back each time."""
    hour, taken, now_s = Hour(), list[int](), NOW_S
    while now_s < NOW_S + 5 * 3600:
        if not takes_of(hour).waits(now_s):
            taken.append(now_s)
            hour = given_up(hour, now_s, f"p{len(taken)}")
            hour = hour.put(read(written(hour.at(now_s), Texts()))[0])
        now_s += every_s
    assert max(sum(start <= at_s < start + 3600 for at_s in taken) for start in taken) <= MOST


def test_many_groups_at_one_time_are_one_wait() -> None:
    """Of 400 that are given up together the next one waits as long as it can."""
    hour = Hour()
    for number in range(400):
        hour = with_take(hour, NOW_S, f"p{number}")
    takes = takes_of(hour)
    for number in range(400):
        takes.gone(f"p{number}", NOW_S + 5)
    assert takes.waits(NOW_S + 5) == {"team": NOW_S + 605}


def test_what_is_kept_counts_against_what_is_given_up() -> None:
    hour = Hour()
    for number in range(5):
        hour = with_take(hour, NOW_S, f"kept-{number}")
    for number in range(6):
        hour = given_up(hour, NOW_S + 1, f"p{number}")
    assert takes_of(hour).waits(NOW_S + 1) == {}
    assert takes_of(given_up(hour, NOW_S + 2, "p6")).waits(NOW_S + 2) == {"team": NOW_S + 32}


def test_what_a_tenant_keeps_of_its_other_namespace_counts_nothing_against_what_others_lose() -> None:
    """Forty pods of its own are kept; it takes from others as often as one that keeps nothing."""
    hour = Hour()
    for number in range(40):
        hour = with_take(hour, NOW_S, f"own-{number}", parts={"team-2": WHOLE})
    takes = takes_of(hour)
    takes.settle(NOW_S + KEPT_S, lambda _: True)
    hour, taken, now_s = takes.hour(), 0, NOW_S + KEPT_S
    while now_s < NOW_S + 3600:
        if not takes_of(hour).waits(now_s):
            taken += 1
            hour = given_up(hour, now_s, f"p{taken}")
        now_s += 10
    assert 2 <= taken <= MOST


@pytest.mark.parametrize(
    ("kept", "lost", "wait_s"),
    [
        ({"a": 500, "b": 500}, [{"a": 500, "b": 500}] * 3, 30),  # one of three is offset
        ({"a": WHOLE}, [{"a": 500, "b": 500}] * 4, 60),  # only of a: three of four
        ({"a": WHOLE}, [dict.fromkeys(map(str, range(40)), 25)], 0),  # a take from forty namespaces is one
    ],
)
def test_takes_from_several_namespaces_count_in_parts(
    kept: Mapping[str, int], lost: list[Mapping[str, int]], wait_s: int
) -> None:
    hour = with_take(Hour(), NOW_S, "kept", parts=kept)
    for number, parts in enumerate(lost):
        hour = given_up(hour, NOW_S + 1, f"p{number}", parts=parts)
    assert takes_of(hour).waits(NOW_S + 1) == ({"team": NOW_S + 1 + wait_s} if wait_s else {})


def test_waits_follow_each_end_as_an_hour_that_is_read_again_says() -> None:
    """What is summed with each end equals what is summed of the hour, also when pieces stop counting."""
    hour = Hour()
    for number in range(60):
        parts = {"a": 400, "b": 600} if number % 3 else {"c": WHOLE}
        hour = with_take(hour, NOW_S + number * 50, f"p{number}", taker=f"team-{number % 4}", parts=parts)
    takes = takes_of(hour)
    for number in range(60):
        now_s = NOW_S + number * 120
        if number % 5:
            takes.gone(f"p{number}", now_s, taken_by="x" if number % 4 == 1 else "")
        else:
            takes.never(f"p{number}")
        assert takes.waits(now_s) == takes_of(takes.hour()).waits(now_s)


class Counted(dict[str, Take]):
    """Counts how often all of it is read."""

    reads = 0

    @override
    def __iter__(self) -> Iterator[str]:
        self.reads += 1
        return super().__iter__()

    @override
    def items(self) -> dict_items[str, Take]:
        self.reads += 1
        return super().items()

    @override
    def values(self) -> dict_values[str, Take]:
        self.reads += 1
        return super().values()


def test_takes_are_read_once_for_all_that_end() -> None:
    known = Counted({f"p{number}": Take(NOW_S, (f"p{number}",), OF_OTHERS) for number in range(200)})
    takes = takes_of(Hour().put(Piece(NOW_S // SPAN_S, {"team": Taken(takes=known)})))
    assert takes.waits(NOW_S) == {}
    before = known.reads
    for number in range(200):
        takes.gone(f"p{number}", NOW_S + 5)
        takes.waits(NOW_S + 5)
    assert known.reads == before
    assert takes.waits(NOW_S + 5) == {"team": NOW_S + 605}


@pytest.mark.parametrize(
    ("at_s", "taken_by", "is_there", "counts"),
    [
        (NOW_S + 10, "", True, (0, 1)),  # one of its two nominated pods ended
        (NOW_S + 10, "other", True, (1, 0)),  # it was evicted for another namespace
        (NOW_S + 10, "team", True, (0, 1)),  # for one of its own
        (NOW_S + KEPT_S, "", True, (1, 0)),
        (None, "", False, (0, 1)),  # it went while nobody looked
        (None, "", True, (0, 0)),
    ],
)
def test_how_a_take_ends(at_s: int | None, taken_by: str, is_there: bool, counts: tuple[int, int]) -> None:
    takes = takes_of(with_take(Hour(), NOW_S, "a", "b"))
    if at_s is not None:
        assert takes.gone("b", at_s, taken_by=taken_by)
    takes.settle(NOW_S + 20, lambda uid: is_there or uid == "a")
    taken = takes.hour().at(NOW_S).of["team"]
    assert taken.counts.get("others", Counts()) == tuple(WHOLE * count for count in counts)
    assert takes.has_news is (counts != (0, 0)) is (not taken.takes)


def test_a_take_that_lasted_is_kept_though_its_pods_are_gone() -> None:
    takes = takes_of(with_take(Hour(), NOW_S, "a"))
    takes.settle(NOW_S + KEPT_S, lambda _: False)
    assert takes.hour().at(NOW_S).of["team"] == Taken(counts={"others": Counts(kept=WHOLE)})


def test_a_take_for_which_nobody_was_evicted_is_none() -> None:
    takes = takes_of(with_take(Hour(), NOW_S, "a"))
    takes.never("a")
    assert takes.hour().at(NOW_S).of["team"] == Taken()


def test_pods_that_are_no_nominees_are_none_of_it() -> None:
    takes = takes_of(with_take(Hour(), NOW_S, "a"))
    assert not takes.gone("x", NOW_S)
    assert not takes.has_news


def test_what_ended_is_news_until_it_is_written() -> None:
    takes = takes_of(with_take(Hour(), NOW_S, "a"))
    takes.gone("a", NOW_S + 1)
    takes.have(with_take(Hour(), NOW_S, "a"))  # another write, that did not know it yet
    assert takes.has_news
    takes.have(takes.hour())
    assert not takes.has_news


# For how long a claim that could not be bound keeps its pods from taking from others.

_HOUR = 3600


def _pod(**claims: tuple[tuple[str, str], ...]) -> PodRecord:
    made = cluster(pod("p")).pod("uid-p")
    assert made is not None
    return msgspec.structs.replace(made, **claims)


def test_each_pause_is_twice_as_long_as_the_one_before_up_to_four_hours() -> None:
    known, at_s, pauses = None, 10_000, list[int]()
    for _ in range(9):
        known = failed_again(known, at_s)
        pauses.append(ends_s(known, at_s) - at_s)
        at_s = ends_s(known, at_s)
    assert pauses == [300, 600, 1200, 2400, 4800, 9600, 4 * _HOUR, 4 * _HOUR, 4 * _HOUR]


def test_in_a_day_a_claim_that_always_fails_has_eleven_pauses() -> None:
    known, begun = None, 0
    for at_s in range(24 * _HOUR):
        now = failed_again(known, at_s)
        begun += now != known
        known = now
    assert begun == 11


def test_what_fails_within_a_pause_does_not_make_it_longer() -> None:
    known = failed_again(None, 1_000)
    assert failed_again(known, 1_299) == known == FailedClaim(1, 1_000)
    assert failed_again(known, 1_300) == FailedClaim(2, 1_300)


def test_a_failure_of_yesterday_counts_no_more() -> None:
    assert failed_again(FailedClaim(4, 0), 2_400 + 4 * _HOUR) == FailedClaim(5, 2_400 + 4 * _HOUR)
    assert failed_again(FailedClaim(4, 0), 2_401 + 4 * _HOUR) == FailedClaim(1, 2_401 + 4 * _HOUR)


@pytest.mark.parametrize(
    ("claims", "until_s"),
    [
        ({}, 0),
        ({"unbound_claims": (("data", "c1"),)}, 1_300),
        ({"unbound_claims": (("data", "c1"), ("more", "c2"))}, 1_600),
        ({"unbound_claims": (("data", "other"),)}, 0),
        ({"to_allocate": (("gpu", "c1"),)}, 1_300),
        ({"to_reserve": (("gpu", "c1"),)}, 1_300),
        ({"unbound_claims": (("data", "c3"),)}, 0),
    ],
    ids=["no claim", "a volume", "the longest", "made again", "a device", "a user of a device", "long ago"],
)
def test_a_pod_is_kept_by_claims_that_it_still_has_to_get(
    claims: dict[str, tuple[tuple[str, str], ...]], until_s: int
) -> None:
    failed = {"c1": FailedClaim(1, 1_000), "c2": FailedClaim(2, 1_000), "c3": FailedClaim(1, 500)}
    assert paused_until_s([_pod(), _pod(**claims)], failed, 1_100) == until_s


def test_a_pod_whose_claim_is_made_when_it_has_a_place_is_kept_by_the_failure_of_that_claim_alone() -> None:
    failed, plain = {made_uid("uid-p"): FailedClaim(1, 1_000)}, _pod()
    way = Backed((("example.com/gpu", "gpu"),), DeviceNeed(requests=()))
    made = msgspec.structs.replace(plain, cls=msgspec.structs.replace(plain.cls, backed=(way,)))
    assert [paused_until_s([each], failed, 1_100) for each in (plain, made)] == [0, 1_300]


def test_the_next_end_is_the_one_that_comes_first() -> None:
    failed = {"c1": FailedClaim(1, 1_000), "c2": FailedClaim(2, 900), "c3": FailedClaim(1, 500)}
    assert [next_end_s(failed, at_s) for at_s in (1_100, 1_300, 1_500)] == [1_300, 1_500, 0]


@given(times=st.integers(1, 10**9), last_s=st.integers(0, 10**11), wall_s=st.integers(0, 10**11))
def test_no_clock_makes_a_pause_longer_than_four_hours(times: int, last_s: int, wall_s: int) -> None:
    assert ends_s(FailedClaim(times, last_s), wall_s) <= wall_s + 4 * _HOUR
