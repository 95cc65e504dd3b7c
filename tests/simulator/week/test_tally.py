"""Sums of a week."""

from __future__ import annotations

import pytest

from scheduler.core.model.quota import QueueRecord, Resources
from scheduler.core.report.state import QueueState
from simulator.week.jobs import HOUR_S, Job
from simulator.week.tally import Tally

pytestmark = pytest.mark.thorough

NANO = 1_000_000_000


def _job(number: int = 0, at_s: int = 0) -> Job:
    return Job(
        number=number, queue="q", kind="k", at_s=at_s, pods=2, gpu_milli=500, lasts_s=60, priority=50, saves_every_s=0
    )


def test_gpu_time_is_cut_at_hours_and_at_the_ends_of_what_is_counted() -> None:
    tally = Tally(2 * HOUR_S)
    tally.ran(_job(), -100, HOUR_S + 50)
    tally.ran(_job(), HOUR_S * 2 - 10, HOUR_S * 3)
    assert [hour.used_milli_s for hour in tally.hours()] == [HOUR_S * 1_000, 60 * 1_000]
    (of_queue,) = tally.groups("queue", ["q"])
    assert of_queue.used_milli_s == (HOUR_S + 60) * 1_000


def test_a_job_waits_until_its_first_start_or_the_end() -> None:
    tally = Tally(HOUR_S)
    for number in range(20):
        tally.came(_job(number, at_s=10))
    for number in range(19):
        tally.started(_job(number, at_s=10), 10 + number)
        tally.started(_job(number, at_s=10), 3_000)
    (waits,) = [each.waits for each in tally.groups("kind", ["k"])]
    assert (waits.jobs, waits.not_started) == (20, 1)
    assert (waits.median_s, waits.p95_s, waits.longest_s) == (9, 18, HOUR_S - 10)


def test_jobs_that_came_before_are_not_counted() -> None:
    tally = Tally(HOUR_S)
    tally.came(_job(at_s=-5))
    tally.started(_job(at_s=-5), 100)
    tally.interrupted(_job(at_s=-5), -1, 60)
    (of_queue,) = tally.groups("queue", ["q"])
    assert (of_queue.waits.jobs, of_queue.waits.longest_s, of_queue.evictions) == (0, 0, 0)


def test_what_an_eviction_throws_away_counts_in_its_hour_queue_and_kind() -> None:
    tally = Tally(2 * HOUR_S)
    tally.interrupted(_job(), HOUR_S + 1, 40)
    tally.interrupted(_job(), HOUR_S + 9, 2)
    assert [(hour.lost_milli_s, hour.evictions) for hour in tally.hours()] == [(0, 0), (42_000, 2)]
    for by, name in (("queue", "q"), ("kind", "k")):
        (found,) = tally.groups(by, [name])
        assert (found.lost_milli_s, found.evictions, found.evicted_jobs) == (42_000, 2, 1)


def _owed(*waiting: int, held: int) -> int:
    """What is owed in an hour to a queue with a quota of 4 GPUs, by jobs of so many milli-GPU each, in milli-GPU."""
    tally = Tally(HOUR_S)
    record = QueueRecord(name="q", uid="q", quota=Resources(gpu_nano=4 * NANO))
    state = QueueState(record=record, held=Resources(gpu_nano=held * NANO))
    tally.sample([state], {"q": waiting, "other": (1_000,)}, at_s=0, every_s=HOUR_S)
    return tally.hours()[0].owed_milli_s // HOUR_S


def test_owed_is_what_waits_and_would_fit_within_the_quota() -> None:
    assert _owed(1_000, 2_000, held=0) == 3_000
    assert _owed(2_000, 3_000, 1_500, 500, held=0) == 4_000
    assert _owed(held=0) == 0


def test_a_gang_that_is_larger_than_what_is_left_of_a_quota_is_owed_nothing() -> None:
    assert _owed(6_000, held=0) == 0
    assert _owed(4_000, 6_000, held=1) == 0
    assert _owed(4_000, 500, held=1) == 500
    assert _owed(1_000, held=7) == 0
