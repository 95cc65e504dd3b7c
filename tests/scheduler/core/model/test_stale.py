from __future__ import annotations

import pytest

from scheduler.core.model.stale import Stale, StaleFacts

S = 1_000_000_000


def test_only_what_differs_is_news() -> None:
    facts, key, gang = StaleFacts(), ("ns", "g"), Stale(since_ns=5)
    told = [facts.note(key, each) for each in (None, gang, Stale(since_ns=5), Stale(since_ns=5, is_going=True), None)]
    assert told == [False, True, False, True, True]
    assert (facts.version, facts.gangs) == (3, {})


@pytest.mark.parametrize(("grace_s", "every_s"), [(60, 6), (5, 0.5), (86_400, 10)])
def test_gangs_are_looked_at_ten_times_in_their_grace_time_and_each_ten_seconds(grace_s: int, every_s: float) -> None:
    assert StaleFacts(grace_ns=grace_s * S).every_ns == every_s * S
