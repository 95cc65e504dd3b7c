"""Some days of a small workload, with and without preemption."""

from __future__ import annotations

from functools import cache

import pytest

from scheduler.core.model.settings import Settings
from simulator.week.jobs import HOUR_S
from simulator.week.week import Week, simulated
from tests.simulator.week.small import crowded, single_gpus, two_teams
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.thorough


@cache
def _ran(*, preemption: bool, seed: int = 1) -> Week:
    return simulated(two_teams(), seed=seed, days=1, settings=Settings(preemption=preemption))


def test_a_seed_gives_the_same_week() -> None:
    again = simulated(two_teams(), seed=1, days=1, settings=Settings(preemption=True))
    assert again == _ran(preemption=True)


def test_sums_agree_and_no_more_gpus_are_used_than_there_are() -> None:
    for preemption in (False, True):
        week = _ran(preemption=preemption)
        assert week.differences == ()
        assert all(hour.used_milli_s <= week.capacity_milli * HOUR_S for hour in week.hours)
        assert len(week.hours) == 24
        for name in ("used_milli_s", "lost_milli_s"):
            by_hour = sum(getattr(hour, name) for hour in week.hours)
            assert by_hour == sum(getattr(each, name) for each in week.queues)
            assert by_hour == sum(getattr(each, name) for each in week.kinds)
        assert sum(each.waits.jobs for each in week.queues) == week.jobs > 0


def test_nothing_is_lost_without_evictions() -> None:
    week = _ran(preemption=False)
    assert (week.nominations, week.ended, sum(hour.lost_milli_s for hour in week.hours)) == (0, {}, 0)


def test_preemption_gives_a_queue_what_it_is_owed_and_costs_work_of_others() -> None:
    off, on = (
        simulated(single_gpus(), seed=1, days=1, settings=Settings(preemption=preemption))
        for preemption in (False, True)
    )
    owed = [sum(hour.owed_milli_s for hour in week.hours) for week in (off, on)]
    quiet, busy = on.queues
    assert on.nominations > 0
    assert owed[1] * 10 < owed[0]
    assert busy.lost_milli_s > 0 == quiet.lost_milli_s
    assert quiet.waits.median_s < off.queues[0].waits.median_s
    assert off.jobs == on.jobs


def test_preemption_owes_less_to_queues_whose_gangs_are_larger_than_what_is_left_of_their_quotas() -> None:
    off, on = (
        simulated(crowded(), seed=2, days=2 if IS_WHOLE else 1, settings=Settings(preemption=preemption))
        for preemption in (False, True)
    )
    owed = [sum(hour.owed_milli_s for hour in week.hours) for week in (off, on)]
    assert owed[1] * 10 < owed[0]
