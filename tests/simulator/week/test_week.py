"""Some days of a small workload, with and without preemption."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

from gpu.share import NANO_PER_DEVICE
from scheduler.core.cluster import Cluster
from scheduler.core.model.quota import QueueRecord, Resources
from scheduler.core.model.settings import Settings
from scheduler.core.report.state import QueueState
from simulator.traces.records import node_record
from simulator.week import workload as workloads
from simulator.week.week import Shell, Tally, Week, simulated
from simulator.week.workload import (
    DAY_H,
    HOUR_S,
    LOAD_PERCENT,
    Job,
    MalformedWorkload,
    When,
    arrivals,
    university,
    weight,
    workload,
)
from tests.simulator.week.small import crowded, single_gpus, two_teams, written
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.thorough


@cache
def _ran(*, preemption: bool, seed: int = 1) -> Week:
    return simulated(two_teams(), seed=seed, days=1, settings=Settings(preemption=preemption))


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
        simulated(
            crowded(),
            seed=2,
            days=2 if IS_WHOLE else 1,
            settings=Settings(preemption=preemption, reserved_nodes_percent=0),
        )
        for preemption in (False, True)
    )
    owed = [sum(hour.owed_milli_s for hour in week.hours) for week in (off, on)]
    assert owed[1] * 10 < owed[0]


# Workloads that people write.


def test_a_part_has_every_nth_node_and_quotas_and_rates_to_match() -> None:
    half = two_teams().part(2)
    assert half.nodes == ("1x4x80GiB",)
    assert [queue.quota for queue in half.queues] == [2, 2]
    assert half.per_day == two_teams().per_day / 2


def test_the_university_has_20_queues_500_nodes_and_asks_for_more_than_there_is() -> None:
    found = university()
    gpus = sum(len(shape.cards_mib) for shape in found.shapes())
    assert (len(found.queues), len(found.shapes()), gpus) == (20, 500, 4_000)
    assert sum(queue.quota for queue in found.queues) == gpus
    asked = sum(
        found.kinds[kind].mean_gpu_hours * rate for queue in found.queues for kind, rate in queue.per_day.items()
    )
    assert asked == pytest.approx(gpus * 24 * LOAD_PERCENT / 100)


def _with(**fields: Any) -> dict[str, Any]:
    return {**written(), **fields}


def _kind(**fields: Any) -> dict[str, Any]:
    return _with(kinds={**written()["kinds"], "gang": {"gpu": 2, "minutes": 300, **fields}})


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ([], "Expected `object`, got `array`"),
        (_with(nodes=[]), "length >= 1"),
        (_with(nodes=["2x7x1g.10gb"]), "nodes: 2x7x1g.10gb: has MIG slices; allowed: whole GPUs"),
        (_with(nodes=["two"]), "nodes 'two'"),
        (_with(hours=3), "unknown field `hours`"),
        (_kind(gpu=1.5), "kinds.gang.gpu: 1.5; allowed: whole GPUs, or a share"),
        (_kind(gpu=0.0001), "kinds.gang.gpu: 0.0001; allowed"),
        (_kind(gpu=8), "kinds.gang.gpu: 8.0; allowed: up to 4, the GPUs of the largest node"),
        (_kind(minutes=0), "Expected `float` >= 1"),
        (_kind(pods=[0]), "Expected `int` >= 1"),
        (_kind(when="dusk"), "Invalid enum value 'dusk'"),
        (_with(queues=[{"name": "a", "quota": 1}] * 2), "queues[1].name: 'a' is there twice"),
        (_with(queues=[{"name": "a", "quota": 1, "per_day": {"x": 1}}]), "queues[0].per_day: 'x' is no kind"),
        (_with(queues=[{"name": c, "quota": 1, "per_day": {"gang": 1e5}} for c in "ab"]), "200000 jobs a day in all"),
    ],
)
def test_what_is_not_allowed_is_refused_with_field_and_value(made: Any, says: str) -> None:
    with pytest.raises(MalformedWorkload) as refused:
        workload(made)
    assert says in str(refused.value)


# Jobs that are drawn.


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


# Sums of a week.

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


# Jobs on records.


def test_a_shared_device_has_a_book_of_its_tenants_until_the_last_one_ends() -> None:
    cluster, later = Cluster(Settings(preemption=False)), list[Callable[[], None]]()
    nodes = [node_record(node, rank) for rank, node in enumerate(workloads.nodes(two_teams()))]
    cluster.replace_nodes(nodes)
    cluster.queues.records.replace([workloads.queue(each) for each in two_teams().queues])
    shell = Shell(cluster, nodes, Tally(1_000), lambda _, call: later.append(call))
    for number in range(2):
        shell.come(
            Job(
                number=number, queue="quiet", kind="share", at_s=0, pods=1, gpu_milli=500, lasts_s=60, priority=100,
                saves_every_s=0,
            )
        )  # fmt: skip
    shell.carry_out(cluster.decide(1, wall_s=workloads.wall_s(0)))
    shell.carry_out(cluster.decide(2, wall_s=workloads.wall_s(0)))

    def tenants() -> list[dict[str, int]]:
        books = (held.book for held in cluster.snapshot().pods.reservations.values())
        return [{uid: entry.nano for uid, entry in book.entries.items()} for book in books if book is not None]

    half = NANO_PER_DEVICE // 2
    assert tenants() == [{"j0-0-0": half, "j1-0-0": half}]
    later[0]()
    assert tenants() == [{"j1-0-0": half}]
    later[1]()
    assert not tenants()
    assert not cluster.validate()
