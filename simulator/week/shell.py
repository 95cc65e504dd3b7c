"""Carries out plans for jobs on records, at once: places pods, evicts victims, and makes evicted jobs start again.

What the API server, the binder and kubelets would do takes no time, but for the grace period of victims. A job works
while all its pods run. When one of them is evicted all of them stop, as distributed training does; the job begins
again where it saved its work last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Attempt, Bind, Explain, Gang, GiveUp, Hold, Join, MakeRoom, Placement, Plan
from scheduler.core.model.preemption import Ended, Intent, RoomFacts, RoomSettings
from scheduler.core.model.records import NodeRecord, PodRecord, SeenPod
from scheduler.core.preemption.nomination_record import Record, evictions
from simulator.settling.books import Books
from simulator.week import objects
from simulator.week.arrivals import Job
from simulator.week.tally import Tally

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
    """Jobs on the nodes of a cluster. ``now_s``: set by the caller. ``later``: calls back after some time."""

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
        self._facts = RoomFacts(settings=cluster.settings.room)
        #: Victims of intents that stand, by id.
        self._victims: dict[str, set[str]] = {}
        self.intents = 0
        #: Intents that ended, by why; and pods that were evicted for one that ended without a start.
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
                case MakeRoom(intent=intent):
                    self._make_room(intent)
                case GiveUp(intent_id=intent_id, because=because):
                    self._give_up(intent_id, because)
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

    # --- making room ---------------------------------------------------------------------------------------------
    def note_facts(self, settings: RoomSettings) -> None:
        """Tell the core who was evicted within the hour."""
        found = evictions(Record(evicted=self._evicted), now_s=objects.wall_s(self.now_s))
        if found != self._facts.evicted:
            self._facts = RoomFacts(version=self._facts.version + 1, evicted=found, settings=settings)
            self.cluster.note_room_facts(self._facts)
        self._evicted = {owner: times for owner, times in self._evicted.items() if owner in found}

    def _make_room(self, intent: Intent) -> None:
        self.cluster.commits.intents.put(intent)
        asked = self._victims.setdefault(intent.id, set())
        self.intents += not asked
        fresh = [victim for victim in intent.victims if victim.pod_uid not in asked]
        now_s = objects.wall_s(self.now_s)
        for owner in dict.fromkeys(victim.owner for victim in fresh):
            self._evicted[owner] = (*self._evicted.get(owner, ()), now_s)
        for victim in fresh:
            asked.add(victim.pod_uid)
            if (state := self._of_pod.get(victim.pod_uid)) is not None:
                self._stop(state)

    def _give_up(self, intent_id: str, because: Ended) -> None:
        asked = self._victims.pop(intent_id, set())
        self.ended[because.value] = self.ended.get(because.value, 0) + 1
        if because is not Ended.BOUND:
            self.in_vain += len(asked)
        self.cluster.commits.intents.drop(intent_id)

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
