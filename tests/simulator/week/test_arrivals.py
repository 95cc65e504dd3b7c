"""Jobs that are drawn."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from simulator.week.jobs import DAY_H, HOUR_S, Job, arrivals, weight
from simulator.week.workload import When, university
from tests.simulator.week.small import two_teams

pytestmark = pytest.mark.thorough


def _drawn(seed: int = 1, days: int = 7) -> list[Job]:
    return arrivals(two_teams(), seed=seed, first_day=0, days=days)


def test_a_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert _drawn() == _drawn()
    assert _drawn() != _drawn(2)
    assert [job.number for job in _drawn()] == list(range(len(_drawn())))


def test_more_jobs_of_one_queue_leave_those_of_another_as_they_were() -> None:
    quiet, busy = two_teams().queues
    more = msgspec.structs.replace(busy, per_day={"gang": 40.0})
    changed = msgspec.structs.replace(two_teams(), queues=(quiet, more))

    def of_quiet(jobs: list[Job]) -> list[Job]:
        return [msgspec.structs.replace(job, number=0) for job in jobs if job.queue == "quiet"]

    assert of_quiet(arrivals(changed, seed=1, first_day=0, days=7)) == of_quiet(_drawn())


@pytest.mark.parametrize("when", When)
def test_an_average_hour_of_the_week_has_the_average_number_of_jobs(when: When) -> None:
    weights = [weight(when, hour) for hour in range(7 * DAY_H)]
    assert sum(weights) == pytest.approx(len(weights))
    assert weight(when, -1) == weights[-1]


def test_people_work_by_day_and_what_is_long_comes_in_the_evening() -> None:
    at = {when: [weight(when, hour) for hour in (3, 11, 18)] for when in When}
    assert at[When.DAY][1] > at[When.DAY][2] > at[When.DAY][0]
    assert at[When.NIGHT][2] > at[When.NIGHT][1] == at[When.NIGHT][0]


def test_as_many_come_as_the_workload_says_on_average() -> None:
    jobs = arrivals(university().part(5), seed=1, first_day=0, days=7)
    kinds = Counter(job.kind for job in jobs)
    expected = Counter[str]()
    for queue in university().part(5).queues:
        expected.update({kind: rate * 7 for kind, rate in queue.per_day.items()})
    for kind, number in expected.items():
        assert kinds[kind] == pytest.approx(number, rel=0.35), kind


def test_jobs_are_in_order_and_within_their_bounds() -> None:
    jobs = arrivals(two_teams(), seed=3, first_day=-1, days=3)
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert all(-DAY_H * HOUR_S <= job.at_s < 2 * DAY_H * HOUR_S for job in jobs)
    assert {job.pods for job in jobs if job.kind == "gang"} == {2, 3}
    assert {job.lasts_s for job in jobs if job.kind == "share"} == {3_600}
