"""For how long a claim that could not be bound keeps its pods from taking from others."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.device_requests import Backed, DeviceNeed
from scheduler.core.model.preemption import FailedClaim
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.extended_claims import made_uid
from scheduler.core.preemption.protection import ends_s, failed_again, next_end_s, paused_until_s
from tests.scheduler.core.objects import cluster, pod

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
