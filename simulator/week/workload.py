"""A workload: nodes, kinds of jobs, and queues with the jobs that come to them, as people write it in a file.

Everything is bounded when it is read, so a run takes no more than these bounds allow.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from simulator.nodes.shape import MalformedShape, NodeShape, parse

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

    @property
    def gpu_hours_per_day(self) -> float:
        """GPU-hours that the jobs of an average day take."""
        return sum(
            self.kinds[kind].mean_gpu_hours * rate for queue in self.queues for kind, rate in queue.per_day.items()
        )

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
