"""A week of a workload in virtual time, on the scheduler's own ``Cluster`` and ``decide``, and what came of it.

Jobs come, are decided on, run, and end. Decisions are 30 s apart at least, so waiting times are that coarse. A day
before Monday is simulated and not counted, so that the cluster is full when counting begins. Amounts are integers:
milli-GPU times seconds, seconds, and hundredths of a percent.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Attempt, Bind, Explain, Gang, GiveUp, Hold, Join, Nominate, Placement, Plan
from scheduler.core.model.preemption import Ended, Nomination, PreemptionFacts, PreemptionSettings
from scheduler.core.model.records import NodeRecord, PodRecord, SeenPod
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.nomination_record import Record, evictions
from scheduler.core.report.state import QueueState, queue_states
from simulator.offline.books import Books
from simulator.traces.records import node_record
from simulator.week import workload as objects
from simulator.week.workload import DAY_H, HOUR_S, Job, Workload, arrivals
from wire.units import SECOND_NS

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


#: A controller makes the pods of an evicted job again after so long.
AGAIN_S: Final = 1

#: Puts off a call by some seconds.
Later = Callable[[int, Callable[[], None]], None]


@dataclass(slots=True)
class _State:
    """A job that has not ended. ``start``: how often its pods were made."""

    job: Job
    left_s: int
    start: int = 0
    waiting: dict[str, PodRecord] = field(default_factory=dict)
    bound: dict[str, PodRecord] = field(default_factory=dict)
    #: Since when it works, None before.
    since_s: int | None = None
    is_stopping: bool = False


class Shell:
    """Jobs on the nodes of a cluster: places pods, evicts victims, and makes evicted jobs start again.

    What the API server, the binder and kubelets would do takes no time, but for the grace period of victims. A job
    works while all its pods run. When one of them is evicted all of them stop, as distributed training does; the job
    begins again where it saved its work last. ``now_s``: set by the caller. ``later``: calls back after some time.
    """

    def __init__(self, cluster: Cluster, nodes: Iterable[NodeRecord], tally: Tally, later: Later) -> None:
        self.cluster = cluster
        self._nodes = {node.name: node for node in nodes}
        self.now_s = 0
        self._tally = tally
        self._later = later
        self._rv = 0
        self._books = Books(cluster, self._next_rv)
        self._jobs: dict[int, _State] = {}
        self._of_pod: dict[str, _State] = {}
        #: When pods of each owner were evicted for others.
        self._evicted: dict[str, tuple[int, ...]] = {}
        self._facts = PreemptionFacts(settings=cluster.settings.preemption_settings)
        #: Victims of nominations that stand, by id.
        self._victims: dict[str, set[str]] = {}
        self.nominations = 0
        #: Nominations that ended, by why; and pods that were evicted for one that ended without a start.
        self.ended: dict[str, int] = {}
        self.in_vain = 0

    # --- jobs ----------------------------------------------------------------------------------------------------
    def come(self, job: Job) -> None:
        """Let a job come."""
        state = self._jobs[job.number] = _State(job, job.lasts_s)
        self._tally.came(job)
        self.cluster.upsert_pod_group(objects.pod_group(job))
        self._make_pods(state)

    def _make_pods(self, state: _State) -> None:
        for pod in objects.pods(state.job, start=state.start, at_s=self.now_s, rv=self._next_rv()):
            state.waiting[pod.uid] = pod
            self._of_pod[pod.uid] = state
            self._take(pod)
        state.start += 1

    def _end(self, state: _State, start: int) -> None:
        if state.start != start or state.since_s is None or state.is_stopping:
            return
        self._tally.ran(state.job, state.since_s, self.now_s)
        self._remove_pods(state)
        group = objects.pod_group(state.job).metadata
        self.cluster.remove_pod_group(group.namespace, group.name)
        self._evicted.pop(group.uid, None)
        del self._jobs[state.job.number]

    def _remove_pods(self, state: _State) -> None:
        for uid in [*state.bound, *state.waiting]:
            self.cluster.remove_pod(uid, has_ended=True)
            self._books.leave(uid)
            del self._of_pod[uid]
        state.bound.clear()
        state.waiting.clear()

    # --- plans ---------------------------------------------------------------------------------------------------
    def carry_out(self, plan: Plan) -> bool:
        """Do what was decided; return whether that was anything but reasons."""
        done = False
        for entry in plan.entries:
            match entry:
                case Bind(placement) | Join(placement) | Attempt(placement) | Hold(placement):
                    self._bind(placement)
                case Gang(placements=placements):
                    for placement in placements:
                        self._bind(placement)
                case Nominate(nomination=nomination):
                    self._preempt(nomination)
                case GiveUp(nomination_id=nomination_id, because=because):
                    self._give_up(nomination_id, because)
                case _:
                    continue
            done = True
        self.cluster.told([entry for entry in plan.entries if isinstance(entry, Explain)])
        return done

    def _bind(self, placement: Placement) -> None:
        state = self._of_pod[placement.pod_uid]
        pod = state.waiting.pop(placement.pod_uid)
        held = self._books.join(pod, self._nodes[placement.node], placement.devices)
        now_bound = objects.bound(pod, placement.node, held, at_s=self.now_s, rv=self._next_rv())
        state.bound[pod.uid] = now_bound
        self._take(now_bound)
        if len(state.bound) == state.job.pods and not state.is_stopping:
            state.since_s = self.now_s
            self._tally.started(state.job, self.now_s)
            start = state.start
            self._later(state.left_s, lambda: self._end(state, start))

    # --- preemption ---------------------------------------------------------------------------------------------
    def note_facts(self, settings: PreemptionSettings) -> None:
        """Tell the core who was evicted within the hour."""
        found = evictions(Record(evicted=self._evicted), now_s=objects.wall_s(self.now_s))
        if found != self._facts.evicted:
            self._facts = PreemptionFacts(version=self._facts.version + 1, evicted=found, settings=settings)
            self.cluster.note_preemption_facts(self._facts)
        self._evicted = {owner: times for owner, times in self._evicted.items() if owner in found}

    def _preempt(self, nomination: Nomination) -> None:
        self.cluster.commits.nominations.put(nomination)
        asked = self._victims.setdefault(nomination.id, set())
        self.nominations += not asked
        fresh = [victim for victim in nomination.victims if victim.pod_uid not in asked]
        now_s = objects.wall_s(self.now_s)
        for owner in dict.fromkeys(victim.owner for victim in fresh):
            self._evicted[owner] = (*self._evicted.get(owner, ()), now_s)
        for victim in fresh:
            asked.add(victim.pod_uid)
            if (state := self._of_pod.get(victim.pod_uid)) is not None:
                self._stop(state)

    def _give_up(self, nomination_id: str, because: Ended) -> None:
        asked = self._victims.pop(nomination_id, set())
        self.ended[because.value] = self.ended.get(because.value, 0) + 1
        if because is not Ended.BOUND:
            self.in_vain += len(asked)
        self.cluster.commits.nominations.drop(nomination_id)

    def _stop(self, state: _State) -> None:
        """Have all pods of a job terminate."""
        if state.is_stopping:
            return
        state.is_stopping = True
        if state.since_s is not None:
            ran_s = self.now_s - state.since_s
            every_s = state.job.saves_every_s
            lost_s = ran_s % every_s if every_s else ran_s
            state.left_s -= ran_s - lost_s
            self._tally.interrupted(state.job, self.now_s, lost_s + objects.GRACE_S)
        for uid, pod in state.bound.items():
            leaving = state.bound[uid] = objects.terminating(pod, rv=self._next_rv())
            self._take(leaving)
        self._later(objects.GRACE_S, lambda: self._gone(state))

    def _gone(self, state: _State) -> None:
        if state.since_s is not None:
            self._tally.ran(state.job, state.since_s, self.now_s)
        self._remove_pods(state)
        state.since_s, state.is_stopping = None, False
        self._later(AGAIN_S, lambda: self._make_pods(state))

    # --- the rest ------------------------------------------------------------------------------------------------
    def waiting_milli(self) -> dict[str, list[int]]:
        """Return milli-GPU of each job that waits, by queue, in the order in which they came.

        One whose pods are just being made again waits as well.
        """
        found: dict[str, list[int]] = {}
        for state in self._jobs.values():
            if not state.bound:
                found.setdefault(state.job.queue, []).append(state.job.milli)
        return found

    def finish(self) -> None:
        """Count what still runs."""
        for state in self._jobs.values():
            if state.since_s is not None:
                self._tally.ran(state.job, state.since_s, self.now_s)

    def _next_rv(self) -> str:
        self._rv += 1
        return str(self._rv)

    def _take(self, record: PodRecord) -> None:
        seen = SeenPod(uid=record.uid, rv=record.rv, has_ended=False, record=record, reservation=None)
        self.cluster.take_pod(seen)


TICK_S: Final = 30
SAMPLE_S: Final = 900
_DAY_S: Final = DAY_H * HOUR_S
_BEFORE_DAYS: Final = 1
#: Decisions on one moment, as long as one has more to do.
_AT_ONCE: Final = 20


class Week(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``evicted_in_vain``: pods that went for others that did not start in their place.

    ``capacity_milli``: of all GPUs. ``nominations``: decisions to make room, and ``ended`` why they were over.
    ``differences``: where the ledger differs from a recount at the end.
    """

    preemption: bool
    seed: int
    days: int
    jobs: int
    capacity_milli: int
    nominations: int
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
        preemption=settings.preemption,
        seed=seed,
        days=days,
        jobs=sum(job.at_s >= 0 for job in jobs),
        capacity_milli=run.capacity_milli,
        nominations=shell.nominations,
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
        now_ns = (self._now_s + _BEFORE_DAYS * _DAY_S + 1) * SECOND_NS
        self.shell.note_facts(self._settings.preemption_settings)
        has_done, plan = False, Plan()
        for _ in range(_AT_ONCE):
            plan = self.cluster.decide(now_ns, wall_s=objects.wall_s(self._now_s))
            self.decisions += 1
            has_done = self.shell.carry_out(plan)
            if not has_done and (plan.wake_at_ns is None or plan.wake_at_ns > now_ns):
                break
        if has_done:
            return self._now_s + TICK_S
        return None if plan.wake_at_ns is None else self._now_s - (now_ns - plan.wake_at_ns) // SECOND_NS

    def _sample(self) -> None:
        queues = self.cluster.queues
        states = queue_states(queues.records.all(), queues.accounts(), queues.sums.sums)
        self.tally.sample(states, self.shell.waiting_milli(), self.shell.now_s, SAMPLE_S)

    def _later(self, after_s: int, call: Callable[[], None]) -> None:
        self._at(self.shell.now_s + after_s, call)

    def _at(self, at_s: int, call: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._events, (at_s, self._made, call))
