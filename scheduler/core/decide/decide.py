"""``decide``: from what is known to what is to be done. Same snapshot, same time, same decision; it changes nothing.

Groups are decided in order; each choice is charged on a working copy before the next is made, so no device is given
twice by one decision (invariants.md, R5). Only what is awake is decided on (backlog/backlog.py): a decision costs what
it places and what was touched, however much waits. What it learns of those that wait comes with it as notes, for the
cluster to keep (``Cluster.learn``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

import msgspec

from scheduler.core.backlog.notes import Note, Notes
from scheduler.core.backlog.shape import Turns
from scheduler.core.decide.allowance import LIMITS, Allowance, Limits
from scheduler.core.decide.alone import Outcome, decide_alone
from scheduler.core.decide.attempts import PLACING, Attempts
from scheduler.core.decide.gangs import WholeGang, whole_gang
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import Entry, Placement, Withdraw
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Verdict


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What is to be done, in the order of decision, and what was learned by deciding.

    ``has_put_off``: whether something was left to the next decision, which follows at once.
    """

    entries: tuple[Entry, ...]
    notes: tuple[Note, ...]
    has_put_off: bool


def decide(snapshot: Snapshot, now_ns: int, limits: Limits = LIMITS) -> Decision:
    """Say what is to be done now. Raises StaleSnapshot if the cluster has changed since the snapshot was made."""
    snapshot.check()
    return _Deciding(snapshot, now_ns, limits).made()


@dataclass(slots=True)
class _Deciding:
    """One decision under way."""

    snapshot: Snapshot
    now_ns: int
    limits: Limits
    attempts: Attempts = field(init=False)
    entries: list[Entry] = field(default_factory=list)
    #: Who has their turn next: shapes and gangs, by the rank of their first pod. The number decides between equals.
    _turns: list[tuple[Rank, int, Turns | WholeGang]] = field(default_factory=list)
    _given: int = 0

    def made(self) -> Decision:
        """Decide everything, or as much as one decision may."""
        snapshot, backlog = self.snapshot, self.snapshot.backlog
        shapes = {id(shape): shape for shape in backlog.awake()}
        shapes.update({id(shape): shape for cls in snapshot.recounts.classes for shape in backlog.of_class(cls)})
        gangs = backlog.awake_gangs()
        namespaces = {shape.key.namespace for shape in shapes.values()} | {gang.key[0] for gang in gangs}
        allowance = Allowance(namespaces=len(namespaces), most=self.limits.most)
        self.attempts = Attempts(snapshot, self.now_ns, self.limits, allowance, Notes(backlog))
        for shape in shapes.values():
            self._give_turn(Turns(shape))
        for gang in gangs:
            whole = whole_gang(gang, self.attempts, self.entries)
            if whole is not None:
                self._give_turn(whole)
        while self._turns:
            _, _, first = heappop(self._turns)
            if isinstance(first, Turns):
                self._decide_shape(first)
            elif first.decide():
                self._give_turn(first)
        self._move_on(list(self._stuck()))
        return Decision(tuple(self.entries), tuple(self.attempts.notes.taken), self.attempts.has_put_off)

    def _give_turn(self, waiting: Turns | WholeGang) -> None:
        rank = waiting.first() if isinstance(waiting, Turns) else waiting.candidate.rank
        if rank is not None:
            self._given += 1
            heappush(self._turns, (rank, self._given, waiting))

    def _decide_shape(self, turns: Turns) -> None:
        """Decide on the next pod of a shape, and by it on all that are left, if it fits nowhere."""
        rank = turns.take()
        known = self.snapshot.pod(rank.uid)
        if known is None:
            raise LookupError(f"pod {rank.uid} waits, and is not known")
        pod = self.snapshot.judge(known)
        if pod.blocker is not None or pod.cls != turns.shape.key.cls:
            self._decide_misfiled(pod)
            self._give_turn(turns)
            return
        outcome = decide_alone(pod, self.attempts, self.entries)
        if outcome is Outcome.SERVED:
            self._give_turn(turns)
        elif isinstance(outcome, Verdict):
            self.attempts.notes.shape_failed(turns.shape.key, outcome, served=turns.taken - {rank.uid})

    def _decide_misfiled(self, pod: PodRecord) -> None:
        """Decide on a pod whose volumes or others' terms have made it one of another shape since it was filed."""
        if pod.blocker is None and decide_alone(pod, self.attempts, self.entries) is Outcome.SERVED:
            return
        self.attempts.notes.misfiled(pod.uid)
        self.attempts.put_off()

    # --- pods that wait for a node that is late ------------------------------------------------------------------
    def _stuck(self) -> Iterator[tuple[PodRecord, Placement]]:
        """Pods that wait for the answer of a node whose time is over."""
        doubts = self.snapshot.doubts
        for placement in self.snapshot.stuck() if doubts else ():
            known = self.snapshot.pod(placement.pod_uid)
            if known is not None and placement.node in doubts:
                yield self.snapshot.judge(known), placement

    def _move_on(self, stuck: Iterable[tuple[PodRecord, Placement]]) -> None:
        """Take back pods that wait for a node whose time is over, as far as they fit where no answer is owed.

        This comes after all pods that wait for room: what is taken back is decided on like any other.
        """
        attempts = self.attempts
        doubted = frozenset(self.snapshot.doubts)
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
