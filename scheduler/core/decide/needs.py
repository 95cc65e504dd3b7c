"""Who needs room made: pods alone, gangs whose missing minimum fits nowhere, and members beyond a minimum, one by one.

Only those that wait for room on nodes or in their queues: a pod that is kept by something else, or waits for others of
a gang, needs none. Pods of a shape and gangs of a line come one after the other, as what one is answered holds for all
behind it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import filterfalse, islice, takewhile
from typing import Any, Final

import msgspec

from scheduler.core.backlog.gang_lines import GangLine, Lined, LineKey
from scheduler.core.backlog.learned import (
    GangGone,
    GangHeldBack,
    GangKeptOff,
    GangLeft,
    GangSlept,
    LinedUp,
    ShapeKeptOff,
)
from scheduler.core.backlog.quota_sleepers import Item
from scheduler.core.backlog.ranked import Ranked, Turns
from scheduler.core.backlog.room_memo import NeedKey
from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.shape import Shape, ShapeKey
from scheduler.core.backlog.waiting_gang import Until
from scheduler.core.decide import queue_use
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.held_back import HeldBackItems
from scheduler.core.decide.needed import gang_need, may_be_freed, pod_need
from scheduler.core.model.plan import Entry, placements
from scheduler.core.model.priority_order import Candidate, Rank, order_members
from scheduler.core.model.quota import Resources
from scheduler.core.queues.accounts import Use
from scheduler.core.room.need import Need

#: For what gangs sleep that wait for room.
_FOR_ROOM: Final = frozenset({Until.MAY_START, Until.CLASS_FITS})


@dataclass(slots=True)
class Needing:
    """What needs room by turns, the first one first: pods of a shape, gangs of a line, or a gang in none.

    ``key``: what answers are remembered by. ``namespace``: whose work a search is. ``turns_of``: whose turn it is,
    looked at when that is first asked. ``asks``: what the next one would use in its queue. ``need_of``: what one of
    them needs; None if it needs no room now. ``members``: how many pods the next one has, about. ``is_barred``: whether
    their queue would take none of them with all others gone.
    """

    key: NeedKey
    namespace: str
    queue: str
    turns_of: Callable[[], Turns[Any]]
    asks: Callable[[], Resources]
    need_of: Callable[[Rank], Need | None]
    members: Callable[[], int] = lambda: 1
    is_barred: Callable[[], bool] = lambda: False
    #: Whether there may be others behind it that have their turn in the next look: once it has its own, or in any case.
    has_more: bool = False
    has_others: bool = False
    _turns: Turns[Any] | None = None
    #: Who come next, as far as that was looked at.
    _next: deque[Rank] = field(default_factory=deque)

    @property
    def turns(self) -> Turns[Any]:
        """Whose turn it is."""
        if self._turns is None:
            self._turns = self.turns_of()
        return self._turns

    @property
    def use(self) -> Resources:
        """What the next one would use in its queue."""
        return self.asks()

    @property
    def rank(self) -> Rank | None:
        """Who is next; None: there is none to come."""
        return self._next[0] if self._next else self.turns.first()

    @property
    def may_have_turn(self) -> bool:
        """Whether somebody is next, as far as that is known."""
        return self._turns is None or self.rank is not None

    def is_settled(self) -> bool:
        """Never: each is asked for singly."""
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
        """The first ``count`` have had their turn."""
        for _ in self._look_ahead(count):
            self._next.popleft()

    def pass_over(self) -> None:
        """The first one needs no room now; those behind it need none either if their queue would take none of them."""
        if self.is_barred():
            self._next.clear()
            self.turns.end()
        else:
            self.take()


def _of_shape(turns: Turns[Shape], attempts: Attempts, *, has_more: bool = False) -> Needing:
    """Pods alone of one shape."""
    key, queues = turns.of.key, attempts.snapshot.queues

    def need(rank: Rank) -> Need | None:
        known = attempts.snapshot.pod(rank.uid)
        pod = None if known is None else attempts.snapshot.judged(known, attempts.now_ns)
        return pod_need(pod, attempts) if pod is not None and pod.cls == key.cls else None

    def is_barred() -> bool:
        return not may_be_freed(attempts.accounts, Use(key.queue, queues.least(key.cls), key.is_fixed))

    return Needing(
        key,
        key.namespace,
        key.queue,
        lambda: turns,
        lambda: queues.asked(key.cls),
        need,
        is_barred=is_barred,
        has_more=has_more,
        _turns=turns,
    )


def _of_line(turns: Turns[GangLine], attempts: Attempts) -> Needing:
    """Gangs of one line: the minimum of each."""
    line = turns.of

    def is_barred() -> bool:
        use = Use(line.key.queue, queue_use.least_of(attempts.snapshot, line.needed), line.key.is_fixed)
        has_choice = len(line.key.alike.tree.names) > 1  # of several subgroups others may do
        return not has_choice and not may_be_freed(attempts.accounts, use)

    return Needing(
        line.key,
        line.key.namespace,
        line.key.queue,
        lambda: turns,
        lambda: queue_use.asked_of(attempts.snapshot, line.needed),
        lambda rank: gang_need(line.gang(rank), attempts),
        lambda: line.key.alike.total,
        is_barred,
        _turns=turns,
    )


def _of_gang(key: Key, attempts: Attempts, served: set[str]) -> Needing:
    """A gang in no line: its minimum, or the next member beyond it. It is looked at when it may have its turn."""
    snapshot, group = attempts.snapshot, attempts.snapshot.pod_groups[key]
    members = cache(lambda: snapshot.waiting_members(*key, attempts.now_ns))
    waiting = cache(lambda: order_members(pod for pod in members() if pod.uid not in served))
    state = cache(lambda: snapshot.quorum(group))

    def turns() -> Turns[Any]:
        alone = Ranked()
        if waiting():
            alone.put_rank(Candidate(waiting(), group, above=state().above).rank)
        return Turns(alone)

    def use() -> Resources:
        return queue_use.asked(snapshot, state().needed(waiting()) or waiting()[:1]).amounts

    def need(_: Rank) -> Need | None:
        return gang_need(key, attempts, served)

    return Needing(key, key[0], group.queue, turns, use, need, lambda: len(waiting()), has_more=True)


def needs_left(
    attempts: Attempts,
    entries: Iterable[Entry],
    held: HeldBackItems,
    *,
    besides: Set[ShapeKey] = frozenset(),
) -> Iterator[Needing]:
    """All that wait for room on nodes after a decision has done ``entries``, but for holders of intents.

    ``held``: those that their queues hold back, of which one of each line comes that is due. ``besides``:
    shapes that are not looked at.
    """
    snapshot = attempts.snapshot
    placed = {placement.pod_uid for placement in placements(entries)}
    gangs = {(pod.namespace, pod.pod_group) for pod in map(snapshot.pod, placed) if pod and pod.pod_group}
    intents = snapshot.commits.intents
    served, served_gangs = placed | intents.holders.keys(), gangs | intents.gangs
    return needs(attempts, served, served_gangs, held, besides=besides)


# --- who they are ------------------------------------------------------------------------------------------------
def needs(
    attempts: Attempts,
    served: set[str],
    served_gangs: set[Key],
    held: HeldBackItems,
    *,
    besides: Set[ShapeKey] = frozenset(),
) -> Iterator[Needing]:
    """All that wait for room on nodes or in their queues, in no order.

    ``served``: pods (UIDs) that need none any more; ``served_gangs``: of which there are some. The others as in
    ``needs_left``.
    """
    backlog, sleeping = attempts.snapshot.backlog, held.items()
    yield from (_of_shape(Turns(shape, served), attempts) for shape in _shapes(attempts, sleeping, besides))
    lines, apart = _gangs(attempts)
    for line in lines:
        keys = {line.gang(rank): rank.uid for rank in line.ranks()}
        yield _of_line(Turns(line, {uid for key, uid in keys.items() if key in served_gangs}), attempts)

    def is_waiting(item: Item) -> bool:
        if isinstance(item, ShapeKey):
            return not served >= backlog.shape(item).uids
        return _is_waiting(item, attempts, served, served_gangs)

    for item, has_others in held.firsts(is_waiting):
        if isinstance(item, ShapeKey):
            needing = _of_shape(Turns(backlog.shape(item), served), attempts, has_more=True)
        else:
            needing = _of_gang(item, attempts, served)
        needing.has_others = has_others
        yield needing
    for key in apart:
        if key not in sleeping and _is_waiting(key, attempts, served, served_gangs):
            yield _of_gang(key, attempts, served)


def _shapes(attempts: Attempts, sleeping: Set[Item], besides: Set[ShapeKey]) -> Iterator[Shape]:
    """Shapes that fit nowhere, neither for their queues nor for berths."""
    backlog = attempts.snapshot.backlog
    off = {note.key for note in attempts.notes.taken if isinstance(note, ShapeKeptOff)}
    for shape in map(backlog.shape, filterfalse(besides.__contains__, backlog.shape_keys)):
        is_asleep = shape.key in sleeping or shape.key in off or shape.key in backlog.kept_off
        if not is_asleep and attempts.notes.kept(shape.key.cls) is not None:
            yield shape


def _is_waiting(key: Key, attempts: Attempts, served: set[str], served_gangs: set[Key]) -> bool:
    """Whether a gang still waits for room: none of its members has some, or those do that its minimum needs."""
    group = attempts.snapshot.pod_groups.get(key)
    if group is None or key not in served_gangs:
        return group is not None
    members = attempts.snapshot.pods.members(*key)
    return attempts.snapshot.quorum(group).is_met and any(pod.uid not in served and not pod.node for pod in members)


def _gangs(attempts: Attempts) -> tuple[list[GangLine], list[Key]]:
    """Gangs that wait for room: in lines, those included that this decision has lined up, and apart.

    So a gang that is decided on again and fails is known by its line in this look as in the next one.
    """
    backlog = attempts.snapshot.backlog
    apart, lined = dict.fromkeys(backlog.gangs_for_room()), dict[Key, Lined]()
    for note in attempts.notes.taken:
        match note:
            case LinedUp(lined=each):
                apart.pop(each.key, None)
                lined[each.key] = each
            case GangSlept(key=key) | GangHeldBack(key=key) | GangKeptOff(key=key) | GangGone(key=key):
                apart.pop(key, None)
                lined.pop(key, None)
                if isinstance(note, GangSlept) and note.until in _FOR_ROOM:
                    apart[key] = None
            case GangLeft(key=key):
                apart.pop(key, None)
                lined.pop(key, None)
            case _:
                pass
    new = defaultdict[LineKey, list[Lined]](list)
    for each in lined.values():
        if each.key not in backlog.lines:
            new[each.line].append(each)
    lines = [line.with_all(new.pop(line.key, ())) for line in backlog.lines.all()]
    return [*lines, *(GangLine(key, each[0].needed).with_all(each) for key, each in new.items())], list(apart)
