"""``decide``: from what is known to what is to be done. Same snapshot, same time, same decision; it changes nothing.

Groups are decided in order; each choice is charged on a working copy before the next is made, so no device is given
twice by one decision (invariants.md, R5). Only what is active is decided on (scheduling_queue/queue.py).
``decide_as_if`` decides on a changed snapshot: what would be done, and what those that wait would be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from scheduler.core.decide.allowance import (
    COST_OF_PLACING,
    LIMITS,
    Allowance,
    Limits,
    cost_of_beginning,
    cost_of_changing,
    cost_of_judging,
)
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.changes import Change
from scheduler.core.decide.gangs import SignatureDecision, whole_gang
from scheduler.core.decide.nominations import Nominees, Returning
from scheduler.core.decide.preemption import PreemptionPhase
from scheduler.core.decide.reserved_nodes import ReserveStep
from scheduler.core.decide.single_pods import WholeShape
from scheduler.core.decide.snapshot import Snapshot, file_touched, filing_touched
from scheduler.core.decide.stale_gangs import StaleGangs
from scheduler.core.model.plan import Entry, Placement, Withdraw
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.order import QueueOrder
from scheduler.core.scheduling_queue.effects import Effect, Effects
from scheduler.core.scheduling_queue.signatures import Turns
from scheduler.core.snapshot.node_count import both

#: What a turn costs beside what is spent in it, in operations.
_TURN: Final = 100


class Waiting(Protocol):
    """What is decided by turns: the pods alone of a shape, a gang, or gangs in a line."""

    @property
    def queue(self) -> str:
        """In which queue it waits."""
        ...

    @property
    def use(self) -> Resources:
        """What its next pods would use there."""
        ...

    @property
    def least(self) -> Resources:
        """The least that they come to use there, wherever they are placed."""
        ...

    @property
    def classes_next(self) -> Iterable[PodClass]:
        """Of its next pods."""
        ...

    @property
    def rank(self) -> Rank | None:
        """The first that gets a turn; None: none is left."""
        ...

    def is_settled(self) -> bool:
        """Whether nothing is left to decide, as what was decided on others holds for it; it then has said so."""
        ...

    def decide(self) -> bool:
        """Have one turn; return whether another may follow."""
        ...


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What is to be done, in the order of decision, and what was learned by deciding.

    ``has_put_off``: whether something was left to the next decision, which follows at once. ``stale_next_ns``: when a
    gang below its minimum is to be judged next; None: never, as far as is known.
    """

    entries: tuple[Entry, ...]
    effects: tuple[Effect, ...]
    has_put_off: bool
    stale_next_ns: int | None = None


def decide(snapshot: Snapshot, now_ns: int, limits: Limits = LIMITS, *, wall_s: int = 0) -> Decision:
    """Say what is to be done now. Raises StaleSnapshot if the cluster has changed since the snapshot was made.

    ``wall_s``: seconds since the epoch. Only ages that objects tell are counted by it (minimum run times, delays): a
    wall clock that jumps makes a protection longer or shorter, and nothing else.
    """
    return ended(deciding(snapshot, now_ns, limits, wall_s=wall_s))


def deciding(snapshot: Snapshot, now_ns: int, limits: Limits = LIMITS, *, wall_s: int = 0) -> Steps[Decision]:
    """Decide likewise in steps. It has to be given up when the cluster changes between two of them."""
    snapshot.check()
    return (yield from _Deciding(snapshot, now_ns, limits, wall_s).made())


@dataclass(slots=True)
class _Deciding:
    """One decision under way."""

    snapshot: Snapshot
    now_ns: int
    limits: Limits
    wall_s: int = 0
    attempts: Attempts = field(init=False)
    entries: list[Entry] = field(default_factory=list)
    #: UIDs of pods alone, and PodGroups, whose claims were prepared for the places that they have their turn for.
    prepared: Set[str] = field(init=False)
    before_all: QueueOrder[Waiting] = field(init=False)
    order: QueueOrder[Waiting] = field(init=False)
    after_all: QueueOrder[Waiting] = field(init=False)
    #: Who room is made for; None: it is not made.
    nominees: Nominees | None = None
    reserve_step: ReserveStep = field(init=False)

    def made(self) -> Steps[Decision]:
        """Decide everything, or as much as one decision may."""
        yield from self.line_up()
        for order in (self.before_all, self.order, self.after_all):
            yield from self._turns(order)
        yield cost_of_beginning(self.snapshot)
        self._move_on(self._stuck())
        self.reserve_step.conclude()
        if self.nominees is not None:
            self.nominees.conclude()
        if self.snapshot.settings.preemption and self.limits.preemption:
            yield cost_of_beginning(self.snapshot)
            failing = self.nominees.failing if self.nominees is not None else {}
            yield from PreemptionPhase(self.attempts, self.entries, self.wall_s, failing, self.reserve_step).run()
        stale = StaleGangs(self.attempts, self.entries)
        stale.run()
        effects = tuple(self.attempts.effects.taken)
        return Decision(tuple(self.entries), effects, self.attempts.has_put_off, stale.next_ns)

    def _turns(self, order: QueueOrder[Waiting]) -> Steps[None]:
        """Have each have its turns."""
        allowance = self.attempts.allowance
        while (first := order.pop()) is not None:
            spent = allowance.spent
            self.attempts.kept.begin_turn(self.reserve_step.keeping_off(first))
            if first.decide():
                self._give_turn(first, self.order if order is self.before_all else order)
            yield _TURN + allowance.spent - spent

    def line_up(self) -> Steps[None]:
        """Have all that is awake wait for its turn.

        What is judged again for its counts alone comes after all others: as the first of its queue it would change
        which queue is due, once a second.
        """
        snapshot, scheduling_queue = self.snapshot, self.snapshot.scheduling_queue
        recounts = snapshot.recounts
        shapes = {id(shape): shape for shape in scheduling_queue.awake()}
        awake = {number for number, shape in shapes.items() if shape.key not in recounts.held_back}
        shapes.update({id(shape): shape for cls in recounts.classes for shape in scheduling_queue.of_class(cls)})
        gangs, lines = scheduling_queue.awake_gangs(), scheduling_queue.lines.awake()
        namespaces = {shape.key.namespace for shape in shapes.values()} | {gang.key[0] for gang in gangs}
        namespaces |= {line.key.namespace for line in lines}
        allowance = Allowance(namespaces=len(namespaces), most=self.limits.most)
        self.attempts = Attempts(snapshot, self.now_ns, self.limits, allowance, Effects(scheduling_queue), self.wall_s)
        self.reserve_step = ReserveStep(self.attempts, self.entries)
        self.prepared = frozenset(self._prepared())
        self.before_all, self.order, self.after_all = (QueueOrder(self.attempts.accounts) for _ in range(3))
        self._serve_nominees()
        yield cost_of_beginning(self.snapshot)
        for number, shape in shapes.items():
            yield _TURN
            whole_shape = WholeShape(Turns(shape, self.attempts.settled), self.attempts, self.entries)
            self._give_turn(whole_shape, self.order if number in awake else self.after_all)
        for gang in gangs:
            yield _TURN
            if gang.key in self.attempts.settled_gangs:
                continue
            whole = whole_gang(gang, self.attempts, self.entries)
            if whole is not None:
                is_recounted = gang.key in recounts.gangs or gang.key in recounts.held_back
                self._give_turn(whole, self.after_all if is_recounted else self.order)
        for line in lines:
            self._give_turn(SignatureDecision(Turns(line), self.attempts, self.entries), self.order)

    def _serve_nominees(self) -> None:
        """Nominated pods whose places are free come before all others: what is kept is kept for them."""
        snapshot = self.snapshot
        if snapshot.settings.preemption and snapshot.commits.nominations:
            keeping = Returning(self.attempts, self.entries).serve()
            self.nominees = Nominees(self.attempts, self.entries, keeping=keeping)
            self.nominees.serve()

    def _give_turn(self, waiting: Waiting, order: QueueOrder[Waiting]) -> None:
        """Its rank is looked at again: what was placed may have changed it, and what is last in turn may be next.

        What waits in a queue that can't be used takes nobody's turn: it says so at once.
        """
        queue = self.attempts.accounts.tree.leaf(waiting.queue)
        while (rank := waiting.rank) is not None:
            if not isinstance(queue, Verdict):
                if rank.uid in self.snapshot.last:
                    order = self.after_all
                elif rank.uid in self.prepared:
                    order = self.before_all
                order.put(queue, rank, waiting)
                return
            if not waiting.decide():
                return

    def _prepared(self) -> Iterator[str]:
        """What has its claims now: its place was charged while they were written, so it is not given to others."""
        for pod in self.snapshot.claims.prepared(self.snapshot.pods.records):
            group = self.snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
            yield pod.uid if group is None else group.uid

    # --- pods that wait for a node that is late ------------------------------------------------------------------
    def _stuck(self) -> Iterator[tuple[PodRecord, Placement]]:
        """Pods that wait for the answer of a node whose time is over."""
        doubts = self.snapshot.doubts
        for placement in self.snapshot.stuck() if doubts else ():
            known = self.snapshot.pod(placement.pod_uid)
            if known is not None and placement.node in doubts:
                yield self.snapshot.judged(known, self.now_ns), placement

    def _move_on(self, stuck: Iterable[tuple[PodRecord, Placement]]) -> None:
        """Take back pods that wait for a node whose time is over, as far as they fit where no answer is owed.

        This comes after all pods that wait for room: what is taken back is decided on like any other. Those for whom
        nothing is left to spend stay where they are until something happens: the next decision would spend the same.
        """
        attempts = self.attempts
        kept = frozenset(name for reserve in self.snapshot.scheduling_queue.reserves.of for name in reserve.nodes)
        doubted = attempts.placer.all_but(kept.union(self.snapshot.doubts)) if self.snapshot.doubts else None
        hopeless = set(attempts.classes.hopeless)
        for pod, placement in stuck:
            if pod.cls in hopeless or not attempts.allowance.has_left(pod.namespace) or not attempts.affords([pod]):
                continue
            if attempts.placer.place(pod, both(doubted, attempts.placer.all_but(pod.cls.excluded))):
                attempts.allowance.spend(pod.namespace, COST_OF_PLACING)
                self.entries.append(Withdraw(placement))
                continue
            attempts.allowance.spend(pod.namespace, cost_of_judging(self.snapshot, pod.cls))
            hopeless.add(pod.cls)


#: Notes that are taken in one step, and what one costs, in operations.
_NOTES_AT_ONCE: Final = 32
_NOTING: Final = 20


class Answer(msgspec.Struct, frozen=True):
    """A decision, and by UID the verdicts on pods that it leaves waiting."""

    decision: Decision
    verdicts: Mapping[str, Verdict]


def decide_as_if(
    snapshot: Snapshot, *changes: Change, now_ns: int, limits: Limits = LIMITS, wall_s: int = 0
) -> Decision:
    """Decide on a snapshot with these changes; ``OnlyThese`` among them keeps it to one group.

    Nothing of ``snapshot`` changes. All that wait are judged again, so the first look at a cluster with much that waits
    costs what the first decision on it did.
    """
    return decide(filed(snapshot, *changes, now_ns=now_ns), now_ns, limits, wall_s=wall_s)


def answer_as_if(
    snapshot: Snapshot, *changes: Change, uids: Iterable[str], now_ns: int, limits: Limits = LIMITS, wall_s: int = 0
) -> Answer:
    """Decide likewise, and return the verdicts on these pods (UIDs) besides."""
    return ended(answering_as_if(snapshot, *changes, uids=uids, now_ns=now_ns, limits=limits, wall_s=wall_s))


def answering_as_if(
    snapshot: Snapshot, *changes: Change, uids: Iterable[str], now_ns: int, limits: Limits = LIMITS, wall_s: int = 0
) -> Steps[Answer]:
    """Do so in steps, which have to be given up when the cluster changes between two of them."""
    changed = snapshot.with_(*changes)
    yield cost_of_changing(snapshot)
    yield from filing_touched(changed, now_ns)
    decision = yield from deciding(changed, now_ns, limits, wall_s=wall_s)
    for number, note in enumerate(decision.effects):
        if number % _NOTES_AT_ONCE == 0:
            yield _NOTES_AT_ONCE * _NOTING
        note.take(changed.scheduling_queue)  # its own: with_ made it
    yield _NOTING
    said = changed.scheduling_queue.said
    return Answer(decision, {uid: verdict for uid in uids if (verdict := said.verdict(uid)) is not None})


def filed(snapshot: Snapshot, *changes: Change, now_ns: int) -> Snapshot:
    """Return a snapshot with these changes that can be decided on."""
    changed = snapshot.with_(*changes)
    file_touched(changed, now_ns)
    return changed
