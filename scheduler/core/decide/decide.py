"""``decide``: from what is known to what is to be done. Same cluster, same time, same plan.

Groups are decided in order; each choice is charged on a working copy before the next is made, so no device is given
twice by one decision (invariants.md, R5). Only what is awake is decided on (backlog/backlog.py): a decision costs what
it places and what was touched, however much waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from scheduler.core.backlog.backlog import WaitingGang
from scheduler.core.backlog.shape import Shape
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Allowance, Limits
from scheduler.core.decide.alone import Outcome, decide_alone
from scheduler.core.decide.attempts import PLACING, Attempts
from scheduler.core.decide.filing import file_alone, file_touched
from scheduler.core.decide.gangs import WholeGang, whole_gang
from scheduler.core.model.plan import Entry, Placement, Plan, Withdraw, placements
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.records import PodClass, PodRecord
from scheduler.core.model.verdict import Verdict

#: What is kept for classes is not looked through for those to forget while it is less than this.
_FEW: Final = 64
#: So long after counts in verdicts were brought up to date that is done again.
_RECOUNT_NS: Final = 1_000_000_000


def decide(cluster: Cluster, now_ns: int, limits: Limits = LIMITS) -> Plan:
    """Say what is to be done now. Leaves the cluster unchanged, but for its memory of this very answer.

    Explains are for pods that have not been told yet (``Cluster.told``). Deciding again when nothing changed and
    ``wake_at_ns`` has not come costs nothing.
    """
    known = cluster.remembered(now_ns)
    if known is not None:
        return known
    cluster.refresh_backlog()
    file_touched(cluster, now_ns)
    plan = _Decision(cluster, now_ns, limits, cluster.judge()).made()
    cluster.remember(plan)
    return plan


@dataclass(slots=True)
class _Decision:
    """One decision under way."""

    cluster: Cluster
    now_ns: int
    limits: Limits
    judge: Callable[[PodRecord], PodRecord]
    attempts: Attempts = field(init=False)
    entries: list[Entry] = field(default_factory=list)
    #: What has its turn next: shapes and gangs, by the rank of their first pod. The number decides between equals.
    _turns: list[tuple[Rank, int, Shape | WholeGang]] = field(default_factory=list)
    _given: int = 0
    #: Shapes that have a turn to come.
    _in_turn: set[Shape] = field(default_factory=set)
    #: Shapes of which a pod had its turn.
    _taken: set[Shape] = field(default_factory=set)

    def made(self) -> Plan:
        """Decide everything, or as much as one decision may."""
        backlog = self.cluster.backlog
        stuck = list(self._stuck())
        self._forget_others()
        recounted, recounted_gangs = self._recounted()
        for gang in recounted_gangs:
            backlog.count_again(gang)
        shapes = {id(shape): shape for shape in backlog.awake()}
        shapes.update({id(shape): shape for cls in recounted for shape in backlog.of_class(cls)})
        gangs = backlog.awake_gangs()
        namespaces = {shape.key.namespace for shape in shapes.values()} | {gang.key[0] for gang in gangs}
        allowance = Allowance(namespaces=len(namespaces), most=self.limits.most)
        keys = {gang.key for gang in recounted_gangs}
        self.attempts = Attempts(self.cluster, self.now_ns, self.limits, allowance, recounted, keys)
        for shape in shapes.values():
            self._give_turn(shape)
        for gang in gangs:
            whole = whole_gang(gang, self.attempts, self.entries)
            if whole is not None:
                self._give_turn(whole)
        while self._turns:
            _, _, first = heappop(self._turns)
            if isinstance(first, Shape):
                self._in_turn.discard(first)
                self._decide_shape(first)
            elif first.decide():
                self._give_turn(first)
        for shape in self._taken:
            shape.put_back()
        self._move_on(stuck)
        placed = {placement.pod_uid for placement in placements(self.entries)}
        return Plan(entries=(*self.entries, *backlog.said.news(placed)), wake_at_ns=self._wake_at_ns())

    def _give_turn(self, waiting: Shape | WholeGang) -> None:
        rank = waiting.first() if isinstance(waiting, Shape) else waiting.candidate.rank
        if rank is not None:
            self._given += 1
            heappush(self._turns, (rank, self._given, waiting))
            if isinstance(waiting, Shape):
                self._in_turn.add(waiting)

    def _decide_shape(self, shape: Shape) -> None:
        """Decide on the first pod of a shape, and by it on all, if it fits nowhere."""
        rank = shape.take()
        self._taken.add(shape)
        pod = self._still_of(shape, rank.uid)
        if pod is None:
            self._give_turn(shape)
            return
        outcome = decide_alone(pod, self.attempts, self.entries)
        if outcome is Outcome.SERVED:
            self._give_turn(shape)
        elif isinstance(outcome, Verdict):
            self.cluster.backlog.said.say_shape(shape, outcome, served=shape.taken - {rank.uid})
            self.cluster.backlog.sleep(shape)

    def _still_of(self, shape: Shape, uid: str) -> PodRecord | None:
        """A pod of a shape as it is now; None if its volumes or others' terms have moved it to another one since."""
        known = self.cluster.pod(uid)
        if known is None:
            raise LookupError(f"pod {uid} waits, and is not known")
        pod = self.judge(known)
        if pod.blocker is None and pod.cls == shape.key.cls:
            return pod
        file_alone(self.cluster, pod, self.now_ns)
        moved_to = self.cluster.backlog.awake_shape_of(uid)
        if moved_to is not None and moved_to not in self._in_turn:
            self._give_turn(moved_to)
        return None

    # --- what is kept --------------------------------------------------------------------------------------------
    def _forget_others(self) -> None:
        """Forget what is kept for classes and gangs of which no pod waits any more, once that is about half."""
        backlog, ledger = self.cluster.backlog, self.cluster.ledger
        if backlog.asleep.pace.is_kept:
            backlog.asleep.pace.keep_only(backlog.gangs(), self.now_ns)
        if backlog.asleep.size + ledger.constraints < 2 * backlog.size + _FEW:
            return
        classes = backlog.classes()
        backlog.asleep.keep_only(classes, set(backlog.gangs()))
        ledger.forget_constraints({one for cls in classes for one in cls.all_constraints()})
        ledger.forget_profiles({profile for cls in classes for profile in cls.profiles()})

    def _stale(self) -> tuple[set[PodClass], list[WaitingGang]]:
        """Classes and gangs whose counts may have changed; as many as one decision judges again, the oldest."""
        backlog = self.cluster.backlog
        gangs = backlog.stale_gangs(self.limits.retold)
        classes = {cls for gang in gangs for cls in gang.classes}
        for cls in backlog.asleep.oldest(self.limits.retold):
            if backlog.has_shapes(cls):
                classes.add(cls)
            elif cls not in classes:
                backlog.asleep.is_told(cls)
        return classes, gangs

    def _recounted(self) -> tuple[set[PodClass], list[WaitingGang]]:
        """What is judged again though nothing may help it, for the counts in its verdict."""
        backlog = self.cluster.backlog
        if self.now_ns < backlog.recount_ns:
            return set(), []
        found = self._stale()
        if any(found):
            backlog.recount_ns = self.now_ns + _RECOUNT_NS
        return found

    def _wake_at_ns(self) -> int | None:
        """When time alone changes the answer."""
        backlog = self.cluster.backlog
        if self.attempts.has_put_off:
            return self.now_ns
        if not any(self._stale()):
            return backlog.next_ns
        if backlog.recount_ns <= self.now_ns:
            backlog.recount_ns = self.now_ns + _RECOUNT_NS
        return backlog.recount_ns if backlog.next_ns is None else min(backlog.recount_ns, backlog.next_ns)

    # --- pods that wait for a node that is late ------------------------------------------------------------------
    def _stuck(self) -> Iterator[tuple[PodRecord, Placement]]:
        """Pods that wait for the answer of a node whose time is over."""
        doubts = self.cluster.doubts()
        for placement in self.cluster.stuck() if doubts else ():
            known = self.cluster.pod(placement.pod_uid)
            if known is not None and placement.node in doubts:
                yield self.judge(known), placement

    def _move_on(self, stuck: Iterable[tuple[PodRecord, Placement]]) -> None:
        """Take back pods that wait for a node whose time is over, as far as they fit where no answer is owed.

        This comes after all pods that wait for room: what is taken back is decided on like any other.
        """
        attempts = self.attempts
        doubted = frozenset(self.cluster.doubts())
        hopeless = set(attempts.hopeless)
        for pod, placement in stuck:
            if pod.cls in hopeless or not attempts.affords([pod]):
                continue
            without = attempts.without(pod)
            if attempts.placer.place(pod, without=doubted | without):
                attempts.allowance.spend(pod.namespace, PLACING)
                self.entries.append(Withdraw(placement))
                continue
            attempts.allowance.spend(pod.namespace, attempts.cost(pod.cls))
            if not without:
                hopeless.add(pod.cls)
