"""A week of a workload in virtual time, on the scheduler's own ``Cluster`` and ``decide``.

Jobs come, are decided on, run, and end. Decisions are 30 s apart at least, so waiting times are that coarse. A day
before Monday is simulated and not counted, so that the cluster is full when counting begins.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Plan
from scheduler.core.model.settings import Settings
from scheduler.core.report.state import queue_states
from simulator.traces.records import node_record
from simulator.week import objects
from simulator.week.arrivals import DAY_H, HOUR_S, Job, arrivals
from simulator.week.shell import Shell
from simulator.week.tally import Hour, OfGroup, Tally
from simulator.week.workload import Workload

TICK_S: Final = 30
SAMPLE_S: Final = 900
_DAY_S: Final = DAY_H * HOUR_S
_BEFORE_DAYS: Final = 1
_S: Final = 1_000_000_000
#: Decisions on one moment, as long as one has more to do.
_AT_ONCE: Final = 20


class Week(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``evicted_in_vain``: pods that went for others that did not start in their place.

    ``capacity_milli``: of all GPUs. ``intents``: decisions to make room, and ``ended`` why they were over.
    ``differences``: where the ledger differs from a recount at the end.
    """

    makes_room: bool
    seed: int
    days: int
    jobs: int
    capacity_milli: int
    intents: int
    ended: dict[str, int]
    evicted_in_vain: int
    queues: tuple[OfGroup, ...]
    kinds: tuple[OfGroup, ...]
    hours: tuple[Hour, ...]
    decisions: int
    differences: tuple[str, ...]


def simulated(
    workload: Workload,
    *,
    seed: int,
    days: int,
    settings: Settings,
    told: Callable[[int], None] = lambda _now_s: None,
) -> Week:
    """Run it. ``told``: of the virtual time, in seconds from Monday, 0:00."""
    jobs = arrivals(workload, seed=seed, first_day=-_BEFORE_DAYS, days=days + _BEFORE_DAYS)
    run = _Run(workload, jobs, settings, seed=seed, ends_s=days * _DAY_S)
    run.go(told)
    tally, shell = run.tally, run.shell
    return Week(
        makes_room=settings.makes_room,
        seed=seed,
        days=days,
        jobs=sum(job.at_s >= 0 for job in jobs),
        capacity_milli=run.capacity_milli,
        intents=shell.intents,
        ended=dict(sorted(shell.ended.items())),
        evicted_in_vain=shell.in_vain,
        queues=tally.groups("queue", [queue.name for queue in workload.queues]),
        kinds=tally.groups("kind", workload.kinds),
        hours=tally.hours(),
        decisions=run.decisions,
        differences=tuple(run.cluster.validate()),
    )


class _Run:
    def __init__(self, workload: Workload, jobs: list[Job], settings: Settings, *, seed: int, ends_s: int) -> None:
        self.tally = Tally(ends_s)
        self.cluster = Cluster(settings)
        self.decisions = 0
        self._settings = settings
        self._ends_s = ends_s
        self._now_s = -_BEFORE_DAYS * _DAY_S
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0
        nodes = objects.nodes(workload)
        self.capacity_milli = sum(node.gpus for node in nodes) * 1_000
        ranks = list(range(len(nodes)))
        random.Random(seed).shuffle(ranks)
        records = [node_record(node, rank) for node, rank in zip(nodes, ranks, strict=True)]
        self.cluster.replace_nodes(records)
        self.shell = Shell(self.cluster, records, self.tally, self._later)
        self.cluster.queues.records.replace([objects.queue(queue) for queue in workload.queues])
        for job in jobs:
            self._at(job.at_s, partial(self.shell.come, job))
        for at_s in range(0, ends_s, SAMPLE_S):
            self._at(at_s, self._sample)

    def go(self, told: Callable[[int], None]) -> None:
        """Let time pass until the end."""
        wakes_s: int | None = None
        while (at_s := self._next_s(wakes_s)) < self._ends_s:
            self._now_s = -(-at_s // TICK_S) * TICK_S
            told(self._now_s)
            while self._events and self._events[0][0] <= self._now_s:
                self.shell.now_s, _, call = heapq.heappop(self._events)
                call()
            self.shell.now_s = self._now_s
            wakes_s = self._decide()
        self.shell.now_s = self._ends_s
        self.shell.finish()

    def _next_s(self, wakes_s: int | None) -> int:
        event_s = self._events[0][0] if self._events else self._ends_s
        return event_s if wakes_s is None else min(event_s, max(wakes_s, self._now_s + TICK_S))

    def _decide(self) -> int | None:
        """Decide until nothing more is to be done now; return when to decide again without an event."""
        now_ns = (self._now_s + _BEFORE_DAYS * _DAY_S + 1) * _S
        self.shell.note_facts(self._settings.room)
        has_done, plan = False, Plan()
        for _ in range(_AT_ONCE):
            plan = self.cluster.decide(now_ns, wall_s=objects.wall_s(self._now_s))
            self.decisions += 1
            has_done = self.shell.carry_out(plan)
            if not has_done and (plan.wake_at_ns is None or plan.wake_at_ns > now_ns):
                break
        if has_done:
            return self._now_s + TICK_S
        return None if plan.wake_at_ns is None else self._now_s - (now_ns - plan.wake_at_ns) // _S

    def _sample(self) -> None:
        queues = self.cluster.queues
        states = queue_states(queues.records.all(), queues.accounts(), queues.sums.sums)
        self.tally.sample(states, self.shell.waiting_milli(), self.shell.now_s, SAMPLE_S)

    def _later(self, after_s: int, call: Callable[[], None]) -> None:
        self._at(self.shell.now_s + after_s, call)

    def _at(self, at_s: int, call: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._events, (at_s, self._made, call))
