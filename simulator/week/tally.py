"""What came of a week: GPU time used and lost, how long jobs waited, and how near queues were to their shares.

Amounts are integers: milli-GPU times seconds, seconds, and hundredths of a percent. Only what falls into the days that
are counted is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from scheduler.core.report.state import QueueState
from simulator.week.jobs import HOUR_S, Job

_NANO_PER_MILLI: Final = 1_000_000
_E4: Final = 10_000


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """From the arrival of jobs to their first start, in seconds.

    ``not_started``: of them; they count as if they had started at the end.
    """

    jobs: int
    not_started: int
    median_s: int
    p95_s: int
    longest_s: int


class OfGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a queue, or of a kind. ``lost_milli_s``: GPU time that evictions threw away, of ``used_milli_s``."""

    name: str
    waits: Waits
    used_milli_s: int
    lost_milli_s: int
    evicted_jobs: int
    evictions: int


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """An hour. ``fair_e4``: of what is due to queues by their fair shares, the part that they have, mean over the hour.

    ``owed_milli_s``: GPU time of jobs that waited and would have fitted within the quotas of their queues, beside what
    these held. A gang that is larger than what is left of a quota is owed nothing: no queue has to give way to it.
    """

    hour: int
    used_milli_s: int
    lost_milli_s: int
    owed_milli_s: int
    fair_e4: int
    evictions: int


@dataclass(slots=True)
class Tally:
    """Counts while a week runs. ``ends_s``: where counting ends; it begins at 0."""

    ends_s: int
    used: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    lost: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    owed: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    fair: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    evicted: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    _of: defaultdict[tuple[str, str], _Sums] = field(default_factory=lambda: defaultdict(_Sums))

    def came(self, job: Job) -> None:
        """Count a job that waits from now on."""
        if 0 <= job.at_s < self.ends_s:
            for sums in self._sums(job):
                sums.waiting[job.number] = job.at_s

    def started(self, job: Job, at_s: int) -> None:
        """Count the first start of a job."""
        for sums in self._sums(job):
            if (since_s := sums.waiting.pop(job.number, None)) is not None:
                sums.waits_s.append(at_s - since_s)

    def ran(self, job: Job, since_s: int, until_s: int) -> None:
        """Count GPU time that a job had."""
        since_s, until_s = max(0, since_s), min(until_s, self.ends_s)
        if until_s <= since_s:
            return
        for sums in self._sums(job):
            sums.used_milli_s += job.milli * (until_s - since_s)
        for hour in range(since_s // HOUR_S, (until_s - 1) // HOUR_S + 1):
            within_s = min(until_s, (hour + 1) * HOUR_S) - max(since_s, hour * HOUR_S)
            self.used[hour] += job.milli * within_s

    def interrupted(self, job: Job, at_s: int, lost_s: int) -> None:
        """Count an eviction of a job. ``lost_s``: of the time that it ran, what is lost."""
        if not 0 <= at_s < self.ends_s:
            return
        self.lost[at_s // HOUR_S] += job.milli * lost_s
        self.evicted[at_s // HOUR_S] += 1
        for sums in self._sums(job):
            sums.lost_milli_s += job.milli * lost_s
            sums.evictions += 1
            sums.evicted.add(job.number)

    def sample(
        self, states: Iterable[QueueState], waiting: Mapping[str, Sequence[int]], at_s: int, every_s: int
    ) -> None:
        """Look at how queues stand; it stands for the time until the next look.

        ``waiting``: milli-GPU of each job that waits, by queue, in the order in which they came.
        """
        if not 0 <= at_s < self.ends_s:
            return
        due = had = owed = 0
        for state in states:
            fair = state.fair.gpu_nano if state.fair is not None else 0
            due += fair
            had += min(fair, state.held.gpu_nano)
            left_milli = (state.record.quota.gpu_nano - state.held.gpu_nano) // _NANO_PER_MILLI
            owed += _fitting(waiting.get(state.record.name, ()), left_milli)
        self.owed[at_s // HOUR_S] += owed * every_s
        self.fair[at_s // HOUR_S].append(had * _E4 // due if due else _E4)

    def hours(self) -> tuple[Hour, ...]:
        """Return all hours."""
        return tuple(
            Hour(
                hour=hour,
                used_milli_s=self.used[hour],
                lost_milli_s=self.lost[hour],
                owed_milli_s=self.owed[hour],
                fair_e4=sum(self.fair[hour]) // max(1, len(self.fair[hour])),
                evictions=self.evicted[hour],
            )
            for hour in range(self.ends_s // HOUR_S)
        )

    def groups(self, by: str, names: Iterable[str]) -> tuple[OfGroup, ...]:
        """Return sums ``by`` "queue" or "kind"."""
        return tuple(self._of[by, name].result(name, self.ends_s) for name in names)

    def _sums(self, job: Job) -> tuple[_Sums, _Sums]:
        return self._of["queue", job.queue], self._of["kind", job.kind]


@dataclass(slots=True)
class _Sums:
    waiting: dict[int, int] = field(default_factory=dict)
    waits_s: list[int] = field(default_factory=list)
    used_milli_s: int = 0
    lost_milli_s: int = 0
    evictions: int = 0
    evicted: set[int] = field(default_factory=set)

    def result(self, name: str, ends_s: int) -> OfGroup:
        waits = sorted([*self.waits_s, *(ends_s - since_s for since_s in self.waiting.values())])
        return OfGroup(
            name=name,
            waits=Waits(
                jobs=len(waits),
                not_started=len(self.waiting),
                median_s=_quantile(waits, 50),
                p95_s=_quantile(waits, 95),
                longest_s=waits[-1] if waits else 0,
            ),
            used_milli_s=self.used_milli_s,
            lost_milli_s=self.lost_milli_s,
            evicted_jobs=len(self.evicted),
            evictions=self.evictions,
        )


def _fitting(jobs: Iterable[int], left: int) -> int:
    """Return what those jobs take that fit one after another, each whole or not at all."""
    took = 0
    for milli in jobs:
        took += milli if milli <= left - took else 0
    return took


def _quantile(ordered: list[int], percent: int) -> int:
    """Return the smallest value that this many percent do not exceed; 0 of none."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0
