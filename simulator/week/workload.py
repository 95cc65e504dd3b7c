"""A workload as people write it in a file: nodes, kinds of jobs, and queues with the jobs that come to them, as drawn.

Everything is bounded when it is read, so a run takes no more than these bounds allow. Of jobs and queues also the
records are made that the scheduler keeps of their objects.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from scheduler.core.convert.pod_groups import queue_record
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import QueueRecord
from scheduler.core.model.records import Held, PodRecord
from simulator.nodes.shape import MalformedShape, NodeShape, parse
from simulator.traces.records import pod_class
from simulator.traces.trace import MILLI_PER_CARD, Ask, TraceNode
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

MILLI_PER_GPU: Final = 1_000
MOST_QUEUES: Final = 1_000
MOST_KINDS: Final = 100
#: Expected jobs of a day, over all queues.
MOST_PER_DAY: Final = 100_000
MOST_DAYS: Final = 28
#: A day's factor lies within this many times ``swing`` of its mean (arrivals.py).
MOST_SWING: Final = 2.0

_Name = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_024)]
_Rate = Annotated[float, msgspec.Meta(ge=0, le=MOST_PER_DAY)]
_Gpus = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class MalformedWorkload(ValueError):
    """Raised when a workload can't be read; the message names field, value and what is allowed."""


class When(enum.StrEnum):
    """At which hours jobs of a kind come: at any, in working hours, or mostly in the evening and on week-ends."""

    ANY = "any"
    DAY = "day"
    NIGHT = "night"


class JobKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of job. ``gpu``: of each pod, below 1 a share of one GPU. ``pods``: numbers of pods to draw from.

    ``minutes``: the median of how long jobs run; ``spread``: of the log-normal distribution around it.
    ``saves_every_min``: how often a job saves its work, 0 for never. ``priority``: as in Kubernetes; from 100 on its
    pods can't be preempted.
    """

    gpu: Annotated[float, msgspec.Meta(gt=0, le=64)]
    pods: Annotated[tuple[_Count, ...], msgspec.Meta(min_length=1, max_length=100)] = (1,)
    minutes: Annotated[float, msgspec.Meta(ge=1, le=100_000)]
    spread: Annotated[float, msgspec.Meta(ge=0, le=2)] = 0.0
    priority: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 50
    saves_every_min: Annotated[float, msgspec.Meta(ge=0, le=100_000)] = 0.0
    when: When = When.ANY

    @property
    def gpu_milli(self) -> int:
        """Milli-GPU of each pod."""
        return round(self.gpu * MILLI_PER_GPU)

    @property
    def mean_gpu_hours(self) -> float:
        """GPU-hours of a job, on average."""
        pods = sum(self.pods) / len(self.pods)
        return self.gpu * pods * self.minutes * math.exp(self.spread**2 / 2) / 60


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue. ``quota`` in GPUs; ``weight``: of what is left above quotas, None for that of its quota.

    ``per_day``: jobs of each kind on an average day. ``swing``: how much days differ, as the spread of a factor.
    """

    name: _Name
    quota: _Gpus
    weight: _Gpus | None = None
    per_day: dict[_Name, _Rate] = {}
    swing: Annotated[float, msgspec.Meta(ge=0, le=MOST_SWING)] = 0.0


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it. ``nodes``: as on the command line, ``500x8x80GiB``."""

    nodes: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=100)]
    kinds: Annotated[dict[_Name, JobKind], msgspec.Meta(min_length=1, max_length=MOST_KINDS)]
    queues: Annotated[tuple[QueueLoad, ...], msgspec.Meta(min_length=1, max_length=MOST_QUEUES)]

    @property
    def per_day(self) -> float:
        """Jobs of an average day."""
        return sum(sum(queue.per_day.values()) for queue in self.queues)

    def shapes(self) -> tuple[NodeShape, ...]:
        """The nodes. Raises MalformedShape."""
        return parse(self.nodes)

    def part(self, step: int) -> Workload:
        """Return a workload of every ``step``-th node, with quotas and rates to match."""
        if step == 1:
            return self
        queues = tuple(
            msgspec.structs.replace(
                queue,
                quota=queue.quota / step,
                per_day={kind: rate / step for kind, rate in queue.per_day.items()},
            )
            for queue in self.queues
        )
        nodes = []
        for text in self.nodes:
            count, _, cards = text.partition("x")
            nodes.append(f"{max(1, int(count) // step)}x{cards}")
        return msgspec.structs.replace(self, nodes=tuple(nodes), queues=queues)


def workload(written: Any) -> Workload:
    """Read a workload from plain values. Raises MalformedWorkload."""
    try:
        found = msgspec.convert(written, Workload, strict=True)
        shapes = found.shapes()
    except (msgspec.ValidationError, MalformedShape) as error:
        raise MalformedWorkload(str(error)) from error
    for text in _contradictions(found, shapes):
        raise MalformedWorkload(text)
    return found


def _contradictions(found: Workload, shapes: tuple[NodeShape, ...]) -> Iterator[str]:
    if any(each.slices for each in shapes):
        yield f"nodes: {', '.join(found.nodes)[:80]}: has MIG slices; allowed: whole GPUs"
    largest = max(len(each.cards_mib) for each in shapes)
    for name, kind in found.kinds.items():
        if kind.gpu_milli < 1 or (kind.gpu > 1 and kind.gpu_milli % MILLI_PER_GPU):
            yield f"kinds.{name}.gpu: {kind.gpu}; allowed: whole GPUs, or a share from 0.001 to 1"
        if kind.gpu > largest:
            yield f"kinds.{name}.gpu: {kind.gpu}; allowed: up to {largest}, the GPUs of the largest node"
    known = set[str]()
    for number, queue in enumerate(found.queues):
        if queue.name in known:
            yield f"queues[{number}].name: {queue.name!r} is there twice; name each queue once"
        known.add(queue.name)
        for kind_name in queue.per_day:
            if kind_name not in found.kinds:
                yield f"queues[{number}].per_day: {kind_name!r} is no kind; allowed: {', '.join(found.kinds)[:200]}"
    if found.per_day > MOST_PER_DAY:
        yield f"queues: {found.per_day:.0f} jobs a day in all; allowed: up to {MOST_PER_DAY}"


_HOURS: Final = 24
#: GPU-hours that jobs ask for, of those that there are, in percent.
LOAD_PERCENT: Final = 105

KINDS: Final = {
    "notebook": JobKind(gpu=0.25, minutes=120, spread=0.7, priority=100, when=When.DAY),
    "debug": JobKind(gpu=1, minutes=30, spread=0.7, priority=100, when=When.DAY),
    "sweep": JobKind(gpu=1, minutes=90, spread=0.7),
    "single": JobKind(gpu=1, minutes=300, spread=1.0, saves_every_min=30),
    "train": JobKind(gpu=8, pods=(1, 2), minutes=480, spread=0.7, saves_every_min=30, when=When.NIGHT),
    "large": JobKind(gpu=8, pods=(4, 8), minutes=720, spread=0.5, saves_every_min=60, when=When.NIGHT),
}
#: Of the GPU-hours of a queue, percent by kind.
_MODELS: Final = {"notebook": 1, "debug": 1, "sweep": 4, "single": 14, "train": 35, "large": 45}
_MIXED: Final = {"notebook": 2, "debug": 2, "sweep": 11, "single": 30, "train": 55}
_TEACHING: Final = {"notebook": 15, "debug": 10, "sweep": 40, "single": 35}
#: Teams: name, how many, quota of each in GPUs, mix, percent of their quota that they ask for on average.
_TEAMS: Final = (
    ("models", 4, 440, _MODELS, 115),
    ("lab", 6, 240, _MIXED, 105),
    ("group", 8, 80, _MIXED, 95),
    ("course", 2, 80, _TEACHING, 60),
)


def university() -> Workload:
    """Return the built-in workload: a university's cluster of 500 nodes with 8 GPUs, and 20 queues.

    Made up, not measured on a real cluster: teams differ in size and in what they run, people work by day, and what is
    long is submitted in the evening. Together they ask for somewhat more than there is.
    """
    queues = [
        QueueLoad(name=f"{name}-{number + 1}", quota=quota, swing=0.5, per_day=_per_day(quota, mix, percent))
        for name, count, quota, mix, percent in _TEAMS
        for number in range(count)
    ]
    return Workload(nodes=("500x8x80GiB",), kinds=KINDS, queues=tuple(queues))


def _per_day(quota: int, mix: dict[str, int], percent: int) -> dict[str, float]:
    """Return jobs a day, so that they ask for this part of the quota."""
    asks = quota * _HOURS * percent / 100 * _SCALE
    return {kind: asks * part / 100 / KINDS[kind].mean_gpu_hours for kind, part in mix.items()}


def _asked() -> int:
    return sum(count * quota * percent for _, count, quota, _, percent in _TEAMS)


#: So that all teams together ask for LOAD_PERCENT of all GPUs.
_SCALE: Final = LOAD_PERCENT * sum(count * quota for _, count, quota, _, _ in _TEAMS) / _asked()


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
