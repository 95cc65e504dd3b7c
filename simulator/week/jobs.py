"""Jobs drawn from a workload, and the records that the scheduler keeps of their objects and of queues."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from scheduler.core.convert.pod_groups import queue_record
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import QueueRecord
from scheduler.core.model.records import Held, PodRecord
from simulator.traces.records import pod_class
from simulator.traces.trace import MILLI_PER_CARD, Ask, TraceNode
from simulator.week.workload import JobKind, QueueLoad, When, Workload
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

HOUR_S: Final = 3_600
DAY_H: Final = 24
_WEEK_H: Final = 7 * DAY_H
#: Days from Monday on which people work.
_WORKING_DAYS: Final = 5
_SHORTEST_S: Final = 60
#: A job runs no longer than this many times the median of its kind.
_LONGEST: Final = 10


class Job(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One job. Times in seconds from the first Monday, 0:00; below zero in the days before."""

    number: int
    queue: str
    kind: str
    at_s: int
    pods: int
    gpu_milli: int
    lasts_s: int
    priority: int
    saves_every_s: int

    @property
    def milli(self) -> int:
        """Milli-GPU of all its pods."""
        return self.pods * self.gpu_milli


def arrivals(workload: Workload, *, seed: int, first_day: int, days: int) -> list[Job]:
    """Return the jobs of these days, in the order in which they come. Day 0 is a Monday.

    The same seed, the same jobs. Each queue and kind has random numbers of its own, so a change of one leaves the jobs
    of all others unchanged.
    """
    drawn = [
        drawn_job
        for queue in workload.queues
        for kind in queue.per_day
        for drawn_job in _of(workload.kinds[kind], kind, queue, seed=seed, first_day=first_day, days=days)
    ]
    drawn.sort(key=lambda job: (job.at_s, job.queue, job.kind))
    return [msgspec.structs.replace(job, number=number) for number, job in enumerate(drawn)]


def weight(when: When, hour: int) -> float:
    """How many jobs come in an hour of the week, by those of an average one."""
    weights = _WEIGHTS[when]
    return weights[hour % _WEEK_H]


def _of(kind: JobKind, name: str, queue: QueueLoad, *, seed: int, first_day: int, days: int) -> Iterator[Job]:
    rng = random.Random(f"{seed}/{queue.name}/{name}")
    for day in range(first_day, first_day + days):
        factor = _factor(seed, queue, day)
        for hour in range(day * DAY_H, (day + 1) * DAY_H):
            per_hour = queue.per_day[name] / DAY_H * weight(kind.when, hour) * factor
            for at in _within_an_hour(rng, per_hour):
                yield _job(rng, kind, name, queue.name, at_s=int((hour + at) * HOUR_S))


def _factor(seed: int, queue: QueueLoad, day: int) -> float:
    """How busy a queue is on a day, 1 on average; the same for all its kinds."""
    if not queue.swing:
        return 1.0
    drawn = random.Random(f"{seed}/{queue.name}/day {day}").gauss(0, queue.swing)
    within = max(-2 * queue.swing, min(2 * queue.swing, drawn))
    return math.exp(within - queue.swing**2 / 2)


def _within_an_hour(rng: random.Random, per_hour: float) -> Iterator[float]:
    at = rng.expovariate(per_hour) if per_hour > 0 else 1.0
    while at < 1:
        yield at
        at += rng.expovariate(per_hour)


def _job(rng: random.Random, kind: JobKind, name: str, queue: str, *, at_s: int) -> Job:
    median_s = kind.minutes * 60
    lasts_s = round(median_s * math.exp(rng.gauss(0, kind.spread)))
    return Job(
        number=0,
        queue=queue,
        kind=name,
        at_s=at_s,
        pods=rng.choice(kind.pods),
        gpu_milli=kind.gpu_milli,
        lasts_s=max(_SHORTEST_S, min(lasts_s, round(median_s * _LONGEST))),
        priority=kind.priority,
        saves_every_s=round(kind.saves_every_min * 60),
    )


def _raw(when: When, hour: int) -> float:
    """Relative numbers of jobs; made up."""
    day, at = divmod(hour, DAY_H)
    is_working_day = day < _WORKING_DAYS
    if when is When.DAY:
        busy = 1.0 if 9 <= at < 18 else 0.3 if 8 <= at < 22 else 0.03
        return busy if is_working_day else 0.15 * busy
    if when is When.NIGHT:
        return 1.0 if 16 <= at < 21 else 0.2 if is_working_day else 0.35
    return 1.0


def _mean_one(when: When) -> tuple[float, ...]:
    raw = [_raw(when, hour) for hour in range(_WEEK_H)]
    mean = sum(raw) / len(raw)
    return tuple(each / mean for each in raw)


_WEIGHTS: Final = {when: _mean_one(when) for when in When}


#: Monday, 5 January 2026, 0:00 UTC: the wall clock of second 0.
MONDAY_S: Final = 1_767_571_200
GRACE_S: Final = 30
#: What a pod asks for each GPU, below what a node has for each of 8.
_CPU_MILLI: Final = 8_000
_MEM_MIB: Final = 65_536
_CREATED: Final = "2025-12-01T00:00:00Z"


def nodes(workload: Workload) -> list[TraceNode]:
    """Return the nodes."""
    return [
        TraceNode(name=each.name, cpu_milli=each.cpu_milli, mem_mib=each.mem_mib, gpus=len(each.cards_mib))
        for each in workload.shapes()
    ]


def queue(load: QueueLoad) -> QueueRecord:
    """Return a queue, without limits."""
    weight = load.quota if load.weight is None else load.weight
    unlimited = {"quota": -1, "overQuotaWeight": 1, "limit": -1}
    resources = {
        "gpu": {"quota": load.quota, "overQuotaWeight": weight, "limit": -1},
        "cpu": unlimited,
        "memory": unlimited,
    }
    written = {
        "metadata": {"name": load.name, "uid": f"q-{load.name}", "creationTimestamp": _CREATED},
        "spec": {"resources": resources},
    }
    return queue_record(msgspec.convert(written, Queue, strict=False))


def pod_group(job: Job) -> PodGroup:
    """Return the PodGroup of a job: all of its pods or none."""
    metadata = {
        "name": _name(job),
        "namespace": job.queue,
        "uid": f"g-{job.number}",
        "resourceVersion": "1",
        "creationTimestamp": created(job.at_s),
    }
    spec = {"minMember": job.pods, "queue": job.queue}
    return msgspec.convert({"metadata": metadata, "spec": spec}, PodGroup)


def pods(job: Job, *, start: int, at_s: int, rv: str) -> list[PodRecord]:
    """Return the pods of a job's ``start``-th start, which wait."""
    name, cls, now = _name(job), _class(job), created(at_s)
    return [
        PodRecord(
            uid=f"{name}-{start}-{member}",
            namespace=job.queue,
            name=f"{name}-{start}-{member}",
            rv=rv,
            node="",
            cls=cls,
            created=now,
            priority=job.priority,
            pod_group=name,
            queue=job.queue,
            controller=f"c-{job.number}",
            grace_s=GRACE_S,
        )
        for member in range(job.pods)
    ]


def bound(pod: PodRecord, node: str, held: tuple[Held, ...], *, at_s: int, rv: str) -> PodRecord:
    """Return a pod that runs on a node; another one of its controller may take its place elsewhere."""
    return msgspec.structs.replace(pod, node=node, held=held, started_s=wall_s(at_s), moves_as=pod.cls, rv=rv)


def terminating(pod: PodRecord, *, rv: str) -> PodRecord:
    """Return a pod that was evicted and is not gone yet."""
    return msgspec.structs.replace(pod, deleting=True, rv=rv)


def wall_s(at_s: int) -> int:
    """Return the wall clock."""
    return MONDAY_S + at_s


def created(at_s: int) -> str:
    """Return a time as the API server writes it."""
    return datetime.fromtimestamp(wall_s(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(job: Job) -> str:
    return f"j{job.number}"


def _class(job: Job) -> PodClass:
    gpus = max(1, job.gpu_milli // MILLI_PER_CARD)
    of_each = min(job.gpu_milli, MILLI_PER_CARD)
    return pod_class(
        Ask(
            cpu_milli=max(1, _CPU_MILLI * job.gpu_milli // MILLI_PER_CARD),
            mem_mib=max(1, _MEM_MIB * job.gpu_milli // MILLI_PER_CARD),
            gpus=gpus,
            gpu_milli=of_each,
        )
    )
