"""Who needs room made: pods alone, and gangs whose missing minimum fits nowhere, in the order of their queues.

Only those that wait for room on nodes: whom a queue holds back, whoever is kept by something else, or waits for others
of a gang, needs none. Pods of a shape and gangs of a line come one after the other, as what one is answered holds for
all behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

import msgspec

from scheduler.core.backlog.gang_lines import GangLine
from scheduler.core.backlog.notes import GangGone, GangHeldBack, GangLeft, GangSlept, LinedUp, ShapeHeldBack
from scheduler.core.backlog.ranked import Ranked, Turns
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


@dataclass(slots=True)
class Needing:
    """What needs room by turns, the first one first: pods of a shape, gangs of a line, or a gang in none.

    ``key``: what answers are remembered by. ``namespace``: whose work a search is. ``asks``: what the next one would
    use in its queue. ``need_of``: what one of them needs; None if it needs no room now.
    """

    key: NeedKey
    namespace: str
    queue: str
    turns: Turns[Any]
    asks: Callable[[], Resources]
    need_of: Callable[[Rank], Need | None]
    #: Who come next, as far as that was looked at.
    _next: deque[Rank] = field(default_factory=deque)

    @property
    def use(self) -> Resources:
        """What the next one would use in its queue."""
        return self.asks()

    @property
    def rank(self) -> Rank | None:
        """Who is next; None: there is none to come."""
        return self._next[0] if self._next else self.turns.first()

    def is_settled(self) -> bool:
        """Never: each is asked for by itself."""
        return False

    def need(self, most: int = 1) -> Need | None:
        """What the next one needs, with up to ``most`` needs in all that are equal to it and follow it at once.

        None if it needs no room now.
        """
        needs = (self.need_of(rank) for rank in self._look_ahead(most))
        first = next(needs, None)
        if first is None or first.delay_ns > 0:  # each has its own time
            return first
        equal = takewhile(lambda need: need is not None and need.form == first.form, needs)
        return msgspec.structs.replace(first, others=tuple(filter(None, equal)))

    def _look_ahead(self, most: int) -> Sequence[Rank]:
        while len(self._next) < most and self.turns.first() is not None:
            self._next.append(self.turns.take())
        return list(islice(self._next, most))

    def take(self, count: int = 1) -> None:
        """So many have had their turn."""
        for _ in self._look_ahead(count):
            self._next.popleft()


def _of_shape(turns: Turns[Shape], attempts: Attempts) -> Needing:
    """Pods alone of one shape."""
    key, queues = turns.of.key, attempts.snapshot.queues

    def need(rank: Rank) -> Need | None:
        known = attempts.snapshot.pod(rank.uid)
        pod = None if known is None else attempts.snapshot.judged(known, attempts.now_ns)
        return pod_need(pod, attempts) if pod is not None and pod.cls == key.cls else None

    return Needing(key, key.namespace, key.queue, turns, lambda: queues.asked(key.cls), need)


def _of_line(turns: Turns[GangLine], attempts: Attempts) -> Needing:
    """Gangs of one line: the minimum of each."""
    line = turns.of
    return Needing(
        line.key,
        line.key.namespace,
        line.key.queue,
        turns,
        lambda: queue_use.asked_of(attempts.snapshot, line.needed),
        lambda rank: gang_need(line.gang(rank), attempts),
    )


def _of_gang(key: Key, pods: list[PodRecord], attempts: Attempts) -> Needing:
    """The minimum of a gang in no line."""
    snapshot, group = attempts.snapshot, attempts.snapshot.pod_groups[key]
    state, alone = snapshot.quorum(group), Ranked()
    alone.put_rank(Candidate(pods, group, above=state.above).rank)
    use = queue_use.asked(snapshot, state.needed(pods) or pods[:1]).amounts
    return Needing(key, key[0], group.queue, Turns(alone), lambda: use, lambda _: gang_need(key, attempts))


# --- what one of them needs --------------------------------------------------------------------------------------
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


# --- who they are ------------------------------------------------------------------------------------------------
def needs(attempts: Attempts, served: set[str], served_gangs: set[Key]) -> Iterator[Needing]:
    """All that wait for room on nodes, in no order. ``served``: pods (UIDs) that need none any more; gangs likewise."""
    backlog = attempts.snapshot.backlog
    held_back = {note.key for note in attempts.notes.taken if isinstance(note, ShapeHeldBack)}
    for shape in backlog.shapes():
        if shape.key in held_back or shape.key in backlog.quota_sleepers:
            continue
        if attempts.notes.kept(shape.key.cls) is not None:
            yield _of_shape(Turns(shape, served), attempts)
    lines, apart = _gangs(attempts)
    for line in lines:
        keys = {line.gang(rank): rank.uid for rank in line.ranks()}
        yield _of_line(Turns(line, {uid for key, uid in keys.items() if key in served_gangs}), attempts)
    for key in apart:
        pods = order_members(attempts.snapshot.waiting_members(*key, attempts.now_ns))
        if key not in served_gangs and pods and key in attempts.snapshot.pod_groups:
            yield _of_gang(key, pods, attempts)


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
