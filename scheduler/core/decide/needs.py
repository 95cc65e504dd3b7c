"""Who needs room made: pods alone, and gangs whose missing minimum fits nowhere, in the order of their queues.

Only those that wait for room on nodes: whom a queue holds back, whoever is kept by something else, or waits for others
of a gang, needs none. Pods of a shape and gangs of a line come one after the other, as what one is answered holds for
all behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.core.backlog.gang_lines import GangLine
from scheduler.core.backlog.notes import GangGone, GangHeldBack, GangLeft, GangSlept, LinedUp, ShapeHeldBack
from scheduler.core.backlog.ranked import Turns
from scheduler.core.backlog.room_memo import NeedKey
from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.shape import Shape
from scheduler.core.backlog.waiting_gang import Until
from scheduler.core.decide import queue_use
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.filing import obstacle
from scheduler.core.model.priority_order import Candidate, Rank, order_members
from scheduler.core.model.records import PodRecord
from scheduler.core.model.resources import Resources
from scheduler.core.queues.use import is_fixed
from scheduler.core.room.need import Need


class Needing(Protocol):
    """What needs room by turns: one need after the other, the first one first."""

    @property
    def key(self) -> NeedKey:
        """What answers are remembered by."""
        ...

    @property
    def namespace(self) -> str:
        """Whose work a search is."""
        ...

    @property
    def queue(self) -> str:
        """In which queue it waits."""
        ...

    @property
    def use(self) -> Resources:
        """What the next one would use there."""
        ...

    @property
    def rank(self) -> Rank | None:
        """Who is next; None: there is none to come."""
        ...

    def is_settled(self) -> bool:
        """Whether nothing is left to look for."""
        ...

    def need(self) -> Need | None:
        """The next one; None if it needs no room now."""
        ...

    def take(self) -> None:
        """The next one has had its turn."""
        ...


@dataclass(slots=True)
class ShapeNeeds:
    """Pods alone of one shape."""

    turns: Turns[Shape]
    attempts: Attempts

    @property
    def key(self) -> NeedKey:
        """The shape."""
        return self.turns.of.key

    @property
    def namespace(self) -> str:
        """Of all its pods."""
        return self.turns.of.key.namespace

    @property
    def queue(self) -> str:
        """Of all its pods."""
        return self.turns.of.key.queue

    @property
    def use(self) -> Resources:
        """What a pod asks."""
        return self.attempts.snapshot.queues.asked(self.turns.of.key.cls)

    @property
    def rank(self) -> Rank | None:
        """Of the next pod."""
        return self.turns.first()

    def is_settled(self) -> bool:
        """Never: it is asked for one by one."""
        return False

    def need(self) -> Need | None:
        """The next pod, if room is all that it lacks."""
        rank, attempts = self.turns.first(), self.attempts
        known = None if rank is None else attempts.snapshot.pod(rank.uid)
        if known is None:
            return None
        pod = attempts.snapshot.judged(known, attempts.now_ns)
        return pod_need(pod, attempts) if pod.cls == self.turns.of.key.cls else None

    def take(self) -> None:
        """The next pod has had its turn."""
        self.turns.take()


def pod_need(pod: PodRecord, attempts: Attempts) -> Need | None:
    """A pod alone, judged, if room is all that it lacks."""
    if pod.gated or obstacle(attempts.snapshot, pod, attempts.now_ns)[0] is not None:
        return None
    if attempts.held_back([pod]) is not None or attempts.placer.taken_claim(pod):
        return None
    return Need(pods=(pod,), queue=pod.queue, priority=pod.priority, is_fixed=is_fixed(pod, None), created=pod.created)


def gang_need(key: Key, attempts: Attempts) -> Need | None:
    """What a gang's minimum lacks, if room is all that keeps it from starting."""
    snapshot, group = attempts.snapshot, attempts.snapshot.pod_group(*key)
    if group is None or group.blocker is not None:
        return None
    waiting = order_members(snapshot.waiting_members(*key, attempts.now_ns))
    ready = [pod for pod in waiting if not pod.gated and obstacle(snapshot, pod, attempts.now_ns)[0] is None]
    state = snapshot.quorum(group)
    if not ready or state.is_met or state.is_starting or not state.is_reachable(ready):
        return None
    if not state.has_choice(ready) and attempts.held_back(state.needed(ready)) is not None:
        return None
    return Need(
        pods=tuple(ready),
        group=group,
        quorum=state,
        queue=group.queue,
        priority=max(pod.priority for pod in ready),
        is_fixed=all(is_fixed(pod, group) for pod in ready),
        created=group.created,
        delay_ns=group.delay_ns,
    )


@dataclass(slots=True)
class LineNeeds:
    """Gangs of one line."""

    turns: Turns[GangLine]
    attempts: Attempts

    @property
    def key(self) -> NeedKey:
        """The line."""
        return self.turns.of.key

    @property
    def namespace(self) -> str:
        """Of all its gangs."""
        return self.turns.of.key.namespace

    @property
    def queue(self) -> str:
        """Of all its gangs."""
        return self.turns.of.key.queue

    @property
    def use(self) -> Resources:
        """What the members that start a gang ask."""
        return queue_use.asked_of(self.attempts.snapshot, self.turns.of.needed)

    @property
    def rank(self) -> Rank | None:
        """Of the next gang."""
        return self.turns.first()

    def is_settled(self) -> bool:
        """Never: it is asked for one by one."""
        return False

    def need(self) -> Need | None:
        """The next gang's minimum."""
        rank = self.turns.first()
        return None if rank is None else gang_need(self.turns.of.gang(rank), self.attempts)

    def take(self) -> None:
        """The next gang has had its turn."""
        self.turns.take()


@dataclass(slots=True)
class GangNeeds:
    """A gang in no line."""

    gang: Key
    pods: list[PodRecord]
    attempts: Attempts
    rank: Rank | None = field(init=False)
    use: Resources = field(init=False)
    queue: str = field(init=False)

    def __post_init__(self) -> None:
        snapshot = self.attempts.snapshot
        group = snapshot.pod_groups[self.gang]
        state = snapshot.quorum(group)
        self.queue = group.queue
        self.rank = Candidate(self.pods, group, above=state.above).rank
        self.use = queue_use.asked(snapshot, state.needed(self.pods) or self.pods[:1]).amounts

    @property
    def key(self) -> NeedKey:
        """The PodGroup."""
        return self.gang

    @property
    def namespace(self) -> str:
        """Of the PodGroup."""
        return self.gang[0]

    def is_settled(self) -> bool:
        """Never: there is one."""
        return False

    def need(self) -> Need | None:
        """Its minimum."""
        return gang_need(self.gang, self.attempts)

    def take(self) -> None:
        """It has had its turn."""
        self.rank = None


# --- who they are ------------------------------------------------------------------------------------------------
def needs(attempts: Attempts, served: set[str], served_gangs: set[Key]) -> Iterator[Needing]:
    """All that wait for room on nodes, in no order. ``served``: pods (UIDs) that need none any more; gangs likewise."""
    backlog = attempts.snapshot.backlog
    held_back = {note.key for note in attempts.notes.taken if isinstance(note, ShapeHeldBack)}
    for shape in backlog.shapes():
        if shape.key in held_back or shape.key in backlog.quota_sleepers:
            continue
        if attempts.notes.kept(shape.key.cls) is not None:
            yield ShapeNeeds(Turns(shape, served), attempts)
    lines, apart = _gangs(attempts)
    for line in lines:
        keys = {line.gang(rank): rank.uid for rank in line.ranks()}
        yield LineNeeds(Turns(line, {uid for key, uid in keys.items() if key in served_gangs}), attempts)
    for key in apart:
        pods = order_members(attempts.snapshot.waiting_members(*key, attempts.now_ns))
        if key not in served_gangs and pods and key in attempts.snapshot.pod_groups:
            yield GangNeeds(key, pods, attempts)


def _gangs(attempts: Attempts) -> tuple[list[GangLine], list[Key]]:
    """Gangs that wait for room: in lines, and apart, as those do that this decision has lined up."""
    backlog = attempts.snapshot.backlog
    apart = dict.fromkeys(backlog.gangs_for_room())
    for note in attempts.notes.taken:
        match note:
            case GangSlept(key=key):
                apart.pop(key, None)
                if note.until is Until.MAY_START:
                    apart[key] = None
            case LinedUp(lined=lined):
                if lined.key not in backlog.lines:
                    apart[lined.key] = None
            case GangHeldBack(key=key) | GangGone(key=key) | GangLeft(key=key):
                apart.pop(key, None)
            case _:
                pass
    return backlog.lines.all(), list(apart)
