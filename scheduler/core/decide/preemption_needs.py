"""Who needs preemption: pods alone, gangs whose missing minimum fits nowhere, and members beyond a minimum, one by one.

Only those that wait for room on nodes or in their queues: what a limit leaves no room for may fit once others of the
queue have gone. A pod that is kept by something else, or waits for others of a gang, needs none. Of those that their
queue holds back each kind that would use the same has its search, the one that was looked at longest ago first.

A need that was refused is due when something has changed that its answer depends on, and a while has passed, or when
time alone may change the answer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from heapq import heapify, heappop
from itertools import filterfalse, islice, takewhile
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from scheduler.core.decide.attempts import Attempts, asked_amounts, asked_use, least_amounts
from scheduler.core.decide.snapshot import obstacle
from scheduler.core.groups.quorum import Surplus
from scheduler.core.model.plan import Entry, placements
from scheduler.core.model.priority_order import Candidate, Rank, order_members
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.protection import paused_until_s
from scheduler.core.queues.accounts import Accounts, Use, over_limit, over_quota
from scheduler.core.queues.use import is_fixed
from scheduler.core.scheduling_queue.effects import (
    GangGone,
    GangHeldBack,
    GangKeptOff,
    GangLeft,
    GangQueued,
    GangSlept,
    ShapeHeldBack,
    ShapeKeptOff,
)
from scheduler.core.scheduling_queue.gang_signatures import GangLine, Lined, LineKey, Until
from scheduler.core.scheduling_queue.held_back import Item
from scheduler.core.scheduling_queue.signatures import (
    NeedKey,
    Passed,
    PreemptionMemo,
    Ranked,
    Refused,
    Shape,
    ShapeKey,
    Stamp,
    Turns,
)
from scheduler.core.scheduling_queue.verdicts import Key
from wire.units import SECOND_NS

_NOBODY: Set[str] = frozenset()


def may_be_freed(accounts: Accounts, use: Use) -> bool:
    """Whether a queue would take a use if all that may be preempted there, and below all queues above it, were gone."""
    queue = accounts.tree.leaf(use.queue)
    if isinstance(queue, Verdict):
        return False
    return not any(
        over_limit(accounts.tree.queues[number].record, accounts.of[number].fixed, use.amounts)
        or (use.is_fixed and over_quota(accounts.tree.queues[number].record, accounts.of[number].fixed, use.amounts))
        for number in queue.path
    )


def pod_need(pod: PodRecord, attempts: Attempts) -> Need | None:
    """What a pod alone needs, judged."""
    if not (_may_start([pod], attempts) and _is_ready(pod, attempts)):
        return None
    need = Need(
        pods=(_by_plugins(pod),),
        queue=pod.queue,
        priority=pod.priority,
        is_fixed=is_fixed(pod, None),
        created=pod.created,
        may_evict=pod.may_evict,
    )
    return _paused(need, [pod], attempts)


def gang_need(key: Key, attempts: Attempts, served: Set[str] = _NOBODY) -> Need | None:
    """What a gang's minimum lacks, or the member that comes next beyond it. ``served``: UIDs of those who lack none."""
    snapshot, group = attempts.snapshot, attempts.snapshot.pod_group(*key)
    if group is None or group.blocker is not None:
        return None
    if isinstance(attempts.bounds_of(group), Verdict):
        return None  # its Topology is not there
    waiting = order_members(snapshot.waiting_members(*key, attempts.now_ns))
    ready = [pod for pod in waiting if pod.uid not in served and _is_ready(pod, attempts)]
    state = snapshot.quorum(group)
    if not ready or state.is_starting:
        return None
    if state.is_met:
        first = Surplus(group, state.active, ready).take()
        return member_need(first, group, attempts) if first is not None else None
    is_able = state.has_choice(ready) or _may_start(state.needed(ready), attempts)
    if not (is_able and state.is_reachable(ready)):
        return None
    need = Need(
        pods=tuple(map(_by_plugins, ready)),
        group=group,
        quorum=state,
        queue=group.queue,
        priority=max(pod.priority for pod in ready),
        is_fixed=all(is_fixed(pod, group) for pod in ready),
        created=group.created,
        delay_ns=group.delay_ns,
        may_evict=all(pod.may_evict for pod in ready),
    )
    return _paused(need, ready, attempts)


def member_need(pod: PodRecord, group: PodGroupRecord, attempts: Attempts) -> Need | None:
    """What a member beyond the minimum needs. It takes from nobody that its own gang would not take from."""
    if not (_is_ready(pod, attempts) and _may_start([pod], attempts)):
        return None
    members = attempts.snapshot.pods.members(group.namespace, group.name)
    need = Need(
        pods=(_by_plugins(pod),),
        group=group,
        queue=group.queue,
        priority=min(pod.priority, *(member.priority for member in members)),
        is_fixed=is_fixed(pod, group),
        created=group.created,
        delay_ns=group.delay_ns,
        may_evict=pod.may_evict,
    )
    return _paused(need, [pod], attempts)


def _by_plugins(pod: PodRecord) -> PodRecord:
    """A pod as it may be placed where device plugins offer its extended resources.

    Nobody goes for devices of claims: what is kept for the pod is counted by what it requests of nodes.
    """
    return pod if not pod.cls.backed else replace(pod, cls=replace(pod.cls, backed=()))


def _is_ready(pod: PodRecord, attempts: Attempts) -> bool:
    if pod.gated or attempts.placer.taken_claim(pod):
        return False
    return obstacle(attempts.snapshot, pod, attempts.now_ns)[0] is None


def _paused(need: Need, pods: Sequence[PodRecord], attempts: Attempts) -> Need:
    """The need with until when it takes from nobody, or from no other namespace. ``pods``: as they are judged."""
    facts, wall_s = attempts.snapshot.preemption_facts, attempts.wall_s
    until_s = paused_until_s(pods, facts.failed_claims, wall_s)
    own_until_s = facts.takers_wait.get(pods[0].namespace, 0)
    own_until_s = own_until_s if own_until_s > wall_s else 0
    return replace(need, paused_until_s=until_s, own_until_s=own_until_s) if until_s or own_until_s else need


def _may_start(pods: Sequence[PodRecord], attempts: Attempts) -> bool:
    """Whether their queue takes them, or would if others had gone."""
    held = attempts.held_back(pods)
    return held is None or may_be_freed(attempts.accounts, held.use)


_MS: Final = 1_000_000
#: So often it is looked for at most for a need that was refused.
AGAIN_NS: Final = 1 * SECOND_NS
#: A need is looked at again so much later for each pod that its search placed.
_PAUSE_NS: Final = 5 * _MS
#: When a need was looked at that never was.
_NEVER_NS: Final = -1


@dataclass(frozen=True, slots=True)
class Looks:
    """As of before a look at ``now_ns``. ``refused``, ``passed``: as in PreemptionMemo; ``stamps``: those still valid.

    Without ``stamps`` everything is due.
    """

    now_ns: int = 0
    stamps: tuple[Stamp, ...] = ()
    refused: Mapping[NeedKey, Refused] = field(default_factory=dict)
    passed: Mapping[NeedKey, Passed] = field(default_factory=dict)

    @classmethod
    def of(cls, memo: PreemptionMemo, now_ns: int = 0, stamps: tuple[Stamp, ...] = ()) -> Looks:
        """Read what is remembered."""
        return cls(now_ns, stamps, memo.refused, memo.passed)

    def at_ns(self, key: NeedKey) -> int:
        """When it was looked at last; before all times if it never was."""
        refused, passed = self.refused.get(key), self.passed.get(key)
        return max(_NEVER_NS if each is None else each.at_ns for each in (refused, passed))

    def is_due(self, key: NeedKey) -> bool:
        """Whether it is to be looked at: the answer may be another one."""
        refused = self.refused.get(key)
        if refused is None or not self.stamps or refused.at_ns > self.now_ns:
            return True
        if refused.again_ns is not None and refused.again_ns <= self.now_ns:
            return True
        return self.may_differ(refused) and self.now_ns >= refused.at_ns + pause_ns(refused)

    def has_news(self, key: NeedKey) -> bool:
        """Whether it is due, and was not asked since something has changed last."""
        passed = self.passed.get(key)
        return self.is_due(key) and (passed is None or passed.stamp not in self.stamps)

    def may_differ(self, refused: Refused) -> bool:
        """Whether something that an answer depends on is another one now."""
        return refused.stamp not in self.stamps


def pause_ns(refused: Refused) -> int:
    """For how long a need that was refused is not searched for again after any change."""
    return max(AGAIN_NS, refused.answer.placed * _PAUSE_NS)


#: Of a kind of which somebody was refused, and is not due.
_SETTLED: Final = None


class First(NamedTuple):
    """Whose turn it is in a line. ``has_others``: there may be others whose turn comes in the next look."""

    item: Item
    has_others: bool


@dataclass(frozen=True, slots=True)
class HeldBackItems:
    """All that their queues hold back, and that sleep for it: in lines, by what they would use."""

    attempts: Attempts
    looks: Looks
    lines: dict[Use, list[tuple[Rank, Item]]] = field(default_factory=dict)

    @classmethod
    def of(cls, attempts: Attempts, looks: Looks) -> HeldBackItems:
        """Those that sleep after a decision. ``looks``: when they were looked at last."""
        found = cls(attempts, looks)
        for item, use, rank in _held_back_items(attempts):
            found.lines.setdefault(use, []).append((rank, item))
        return found

    def items(self) -> set[Item]:
        """All of them."""
        return {item for line in self.lines.values() for _, item in line}

    def freeable(self) -> set[Item]:
        """Those that their queues would take if others had gone: no search is made for the rest."""
        return {item for line in self._freeable() for _, item in line}

    def firsts(self, is_waiting: Callable[[Item], bool]) -> Iterator[First]:
        """One of each line, if there is one that is due and still waits."""
        looks = self.looks
        for line in self._freeable():
            due = self._due(line)
            heapify(due)
            while due:
                *_, item = heappop(due)
                if is_waiting(item):
                    yield First(item, any(looks.has_news(other) and is_waiting(other) for *_, other in due))
                    break

    def _freeable(self) -> Iterator[list[tuple[Rank, Item]]]:
        accounts = self.attempts.accounts
        return (line for use, line in self.lines.items() if may_be_freed(accounts, use))

    def _due(self, line: list[tuple[Rank, Item]]) -> list[tuple[int, int, Rank, Item]]:
        """Those that are due: when one of the kind was looked at last, when it was itself, and where it stands."""
        looks = self.looks
        if len(line) == 1:
            ((rank, item),) = line
            return [(0, 0, rank, item)] if looks.is_due(item) else []
        kinds = [_kind(item, rank, self.attempts) for rank, item in line]
        looked: dict[Hashable, int | None] = {}
        for kind, (_, item) in zip(kinds, line, strict=True):
            before = looked.get(kind, 0)
            if before is not _SETTLED:
                looked[kind] = max(before, looks.at_ns(item)) if looks.is_due(item) else _SETTLED
        return [
            (at_ns, looks.at_ns(item), rank, item)
            for kind, (rank, item) in zip(kinds, line, strict=True)
            if (at_ns := looked[kind]) is not None
        ]


def _kind(item: Item, rank: Rank, attempts: Attempts) -> Hashable:
    """What those have in common that get the same answer: a shape, or gangs that ask the same."""
    if isinstance(item, ShapeKey):
        return item
    group = attempts.snapshot.pod_groups.get(item)
    if group is None or group.delay_ns > 0:  # each has its own time
        return item
    classes = attempts.snapshot.scheduling_queue.gang(item).classes
    return rank.minus_priority, item[0], classes, group.minimum, group.tree, group.levels


def _held_back_items(attempts: Attempts) -> Iterator[tuple[Item, Use, Rank]]:
    scheduling_queue, now = attempts.snapshot.scheduling_queue, dict[Item, tuple[Use, Rank]]()
    for note in attempts.effects.taken:
        match note:
            case GangHeldBack(key=key, use=use, rank=rank):
                now[key] = use, rank
            case ShapeHeldBack(key=shape):
                ranks = (rank for rank in scheduling_queue.shape(shape).ranks() if rank.uid not in note.served)
                if (first := min(ranks, default=None)) is not None:
                    now[shape] = note.held.use, first
            case _:
                pass
    for item, use, rank in scheduling_queue.over_quota.waiting():
        if item not in now:
            yield item, use, rank
    yield from ((item, use, rank) for item, (use, rank) in now.items())


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
        use = Use(line.key.queue, least_amounts(attempts.snapshot, line.needed), line.key.is_fixed)
        has_choice = len(line.key.alike.tree.names) > 1  # of several subgroups others may do
        return not has_choice and not may_be_freed(attempts.accounts, use)

    return Needing(
        line.key,
        line.key.namespace,
        line.key.queue,
        lambda: turns,
        lambda: asked_amounts(attempts.snapshot, line.needed),
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
        return asked_use(snapshot, state().needed(waiting()) or waiting()[:1]).amounts

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
    """All that wait for room on nodes after a decision has done ``entries``, but for nominated pods of nominations.

    ``held``: those that their queues hold back, of which one of each line comes that is due. ``besides``:
    shapes that are not looked at.
    """
    snapshot = attempts.snapshot
    placed = {placement.pod_uid for placement in placements(entries)}
    gangs = {(pod.namespace, pod.pod_group) for pod in map(snapshot.pod, placed) if pod and pod.pod_group}
    nominations = snapshot.commits.nominations
    served, served_gangs = placed | nominations.nominees.keys(), gangs | nominations.gangs
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
    scheduling_queue, sleeping = attempts.snapshot.scheduling_queue, held.items()
    yield from (_of_shape(Turns(shape, served), attempts) for shape in _shapes(attempts, sleeping, besides))
    lines, apart = _gangs(attempts)
    for line in lines:
        keys = {line.gang(rank): rank.uid for rank in line.ranks()}
        yield _of_line(Turns(line, {uid for key, uid in keys.items() if key in served_gangs}), attempts)

    def is_waiting(item: Item) -> bool:
        if isinstance(item, ShapeKey):
            return not served >= scheduling_queue.shape(item).uids
        return _is_waiting(item, attempts, served, served_gangs)

    for item, has_others in held.firsts(is_waiting):
        if isinstance(item, ShapeKey):
            needing = _of_shape(Turns(scheduling_queue.shape(item), served), attempts, has_more=True)
        else:
            needing = _of_gang(item, attempts, served)
        needing.has_others = has_others
        yield needing
    for key in apart:
        if key not in sleeping and _is_waiting(key, attempts, served, served_gangs):
            yield _of_gang(key, attempts, served)


def _shapes(attempts: Attempts, sleeping: Set[Item], besides: Set[ShapeKey]) -> Iterator[Shape]:
    """Shapes that fit nowhere, neither for their queues nor for node reserves."""
    scheduling_queue = attempts.snapshot.scheduling_queue
    off = {note.key for note in attempts.effects.taken if isinstance(note, ShapeKeptOff)}
    for shape in map(scheduling_queue.shape, filterfalse(besides.__contains__, scheduling_queue.shape_keys)):
        is_asleep = shape.key in sleeping or shape.key in off or shape.key in scheduling_queue.kept_off
        if not is_asleep and attempts.effects.kept(shape.key.cls) is not None:
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
    scheduling_queue = attempts.snapshot.scheduling_queue
    apart, lined = dict.fromkeys(scheduling_queue.gangs_for_preemption()), dict[Key, Lined]()
    for note in attempts.effects.taken:
        match note:
            case GangQueued(lined=each):
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
        if each.key not in scheduling_queue.lines:
            new[each.line].append(each)
    lines = [line.with_all(new.pop(line.key, ())) for line in scheduling_queue.lines.all()]
    return [*lines, *(GangLine(key, each[0].needed).with_all(each) for key, each in new.items())], list(apart)
