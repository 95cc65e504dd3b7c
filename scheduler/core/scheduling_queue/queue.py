"""The scheduling queue: what has to be decided now, and what sleeps until something happens that may help it.

Pods alone wait by signature, gangs by PodGroup. Each change that may move a pod touches it; what was touched is looked
at again when the next decision begins (decide/snapshot.py), and nothing else is. So a decision costs what has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping, Set
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from scheduler.core.model import stale
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import NoVictims
from scheduler.core.model.priority_order import Rank, rank_alone
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.queues.accounts import Accounts, HeldBack, Use
from scheduler.core.queues.reserved_nodes import NodeReserves
from scheduler.core.queues.tree import Tree
from scheduler.core.queues.use import is_fixed
from scheduler.core.scheduling_queue.gang_signatures import GangLines, GangSignature, Lined, Until, WaitingGang
from scheduler.core.scheduling_queue.held_back import Item, KeptOff, Off, OverQuota
from scheduler.core.scheduling_queue.hints import asks_others
from scheduler.core.scheduling_queue.signatures import NEVER_LOOKED, Shape, ShapeKey
from scheduler.core.scheduling_queue.unschedulable import LOOKED_AT, Kept, KeptGang, Unschedulable
from scheduler.core.scheduling_queue.verdicts import Key, Verdicts


class Timers:
    """When each pod (UID) or gang is looked at again though nothing happens."""

    def __init__(self) -> None:
        #: With those that an earlier one has replaced, which don't count. The second number tells equal times apart.
        self._heap: list[tuple[int, int, str | Key]] = []
        self._at_ns: dict[str | Key, int] = {}
        self._set = 0

    def put(self, at_ns: int, item: str | Key) -> None:
        """Have it due when this time has come, or earlier if that was asked before."""
        if self._at_ns.get(item, at_ns + 1) > at_ns:
            self._at_ns[item] = at_ns
            self._set += 1
            heappush(self._heap, (at_ns, self._set, item))

    def due(self, now_ns: int) -> Iterator[str | Key]:
        """Take those whose time has come, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, _, item = heappop(self._heap)
            if self._at_ns.get(item) == at_ns:
                del self._at_ns[item]
                yield item

    @property
    def next_ns(self) -> int | None:
        """When the next one is due."""
        while self._heap and self._at_ns.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class Resting:
    """Ids of standing nominations about which something has changed; at first that are all."""

    __slots__ = ("_awake",)

    def __init__(self) -> None:
        #: None: all.
        self._awake: dict[str, None] | None = None

    @property
    def awake(self) -> Iterable[str] | None:
        """Ids of those to be looked at, and of some that stand no more; None: all."""
        return self._awake

    def wake(self, ids: Iterable[str]) -> None:
        """Something that these depend on has changed."""
        if self._awake is not None:
            self._awake.update(dict.fromkeys(ids))

    def wake_all(self) -> None:
        """Something that any of them may depend on has changed."""
        self._awake = None

    def looked(self, awake: Iterable[str]) -> None:
        """All that were awake were looked at. ``awake``: those that are to be looked at again in any case."""
        self._awake = dict.fromkeys(awake)


#: The most classes that are compared with nodes that changed, at some microseconds each, before a decision begins.
#: Further ones are woken, and what each of their namespaces may spend in a decision decides when they are compared.
_COMPARED: Final = 1_000
#: What is kept for classes is not looked through for those to forget while it is less than this.
_FEW: Final = 64
#: Those sleep for want of room on nodes, whose verdicts count nodes.
_FOR_ROOM: Final = frozenset({Until.CLASS_FITS, Until.MAY_START})


class SchedulingQueue:
    """What waits. ``said``: what it is to be told. ``places``: which pods are where, as of now; None: nobody knows."""

    def __init__(self, ledger: Ledger, places: Callable[[], PodPlaces] | None = None) -> None:
        self._ledger = ledger
        self.said = Verdicts()
        #: Verdicts on classes and gangs that fitted nowhere.
        self.unschedulable = Unschedulable(ledger, places)
        #: Who sleeps because of its queue.
        self.over_quota = OverQuota()
        #: Nodes that are kept for groups that waited too long, and who sleeps because of that.
        self.reserves = NodeReserves()
        self.kept_off = KeptOff(ledger, places)
        self.touched: set[str] = set()
        self._shapes: dict[ShapeKey, Shape] = {}
        self._shape_of: dict[str, Shape] = {}
        self._of_class: dict[PodClass, dict[ShapeKey, None]] = {}
        self._awake: dict[ShapeKey, None] = {}
        self._gangs: dict[Key, WaitingGang] = {}
        #: Gangs that could not start, by line; all but the first of a line wait behind it.
        self.lines = GangLines(ledger, self.unschedulable)
        #: Gangs that are in no line.
        self._apart: dict[Key, None] = {}
        self._awake_gangs: dict[Key, None] = {}
        #: What sleeps, and can wake without any node having got more.
        self._judged_always: dict[ShapeKey | Key, None] = {}
        #: Gangs that wait for room: the change of the ledger that the counts in their verdicts are of, oldest first.
        self._counted_at: dict[Key, int] = {}
        self._timers = Timers()
        self._woken_at = -1
        #: Needs for which room was looked for.
        self.preemption = NEVER_LOOKED
        #: Gangs that were refused room, and of which something has changed since the last look.
        self.retry_preemption: dict[Key, None] = {}
        #: Standing nominations that need no look.
        self.resting = Resting()
        #: Pods that were moved and are gone (UIDs), since when that is known: their successors have places.
        self.returning: Mapping[str, int] = {}
        #: When gangs below their minimum are judged.
        self.stale = stale.NEVER_LOOKED
        #: When searches for devices go on that were cut short; None: none was.
        self.search_on_ns: int | None = None
        #: When counts in verdicts are brought up to date next.
        self.recount_ns = 0

    # --- what happens --------------------------------------------------------------------------------------------
    def touch(self, uid: str) -> None:
        """Something about a pod may have changed."""
        self.touched.add(uid)

    def touch_gang(self, namespace: str, pod_group: str, *, waits: bool = False) -> None:
        """Something about a gang may have changed. ``waits``: one of its pods has no node."""
        key = (namespace, pod_group)
        if waits:
            self._gangs.setdefault(key, WaitingGang(key))
            if key not in self.lines:
                self._apart[key] = None
        if key in self._gangs:
            self._wake_gang(key)
        if key in self.preemption.refused or key in self.preemption.passed:
            self.retry_preemption[key] = None

    def touch_avoiding(self) -> None:
        """Where pods are that keep others off has changed: some that were kept off may not be any more."""
        for shape in self._shapes.values():
            if shape.key.cls.avoids or shape.key.cls.taken_by:
                self.touched.update(shape.uids)
        for gang in self._gangs.values():
            if any(cls.avoids or cls.taken_by for cls in gang.classes):
                self._wake_gang(gang.key)

    def wake_at(self, at_ns: int, item: str | Key) -> None:
        """Touch a pod or a gang when this time has come."""
        self._timers.put(at_ns, item)

    def touch_due(self, now_ns: int) -> None:
        """Touch those whose time has come."""
        for item in self._timers.due(now_ns):
            if isinstance(item, str):
                self.touch(item)
            elif item in self._gangs:
                self._wake_gang(item)

    @property
    def next_ns(self) -> int | None:
        """When time alone changes something."""
        return self._timers.next_ns

    # --- where pods belong ---------------------------------------------------------------------------------------
    def file(self, pod: PodRecord, *, is_apart: bool) -> None:
        """A pod alone waits for room, beside others of its class unless it ``is_apart``."""
        key = ShapeKey(pod.namespace, pod.cls, pod.uid if is_apart else "", pod.queue, is_fixed(pod, None))
        before = self._shape_of.get(pod.uid)
        if before is not None and before.key != key:
            self._leave(pod.uid)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(key)
            self._of_class.setdefault(pod.cls, {})[key] = None
            self._awake[key] = None
        shape.put(pod)
        self._shape_of[pod.uid] = shape
        self.over_quota.raise_rank(key, rank_alone(pod))
        if key in self.kept_off:
            self._wake_shape(key)  # the pod may come before the one that nodes are kept for
        self.said.join(pod.uid, shape)

    def preemption_refused(self, uid: str, gang: Key | None) -> NoVictims | None:
        """Why nobody was evicted for a pod, or its gang, when that was last looked for; None if nothing says so."""
        shape, key = self._shape_of.get(uid), None if gang is None else (self.lines.line_of(gang) or gang)
        refused = self.preemption.refused.get(key if shape is None else shape.key)
        return None if refused is None else refused.answer

    def hold(self, uid: str, verdict: Verdict) -> None:
        """A pod alone waits for something else than room."""
        self._leave(uid)
        self.said.say((uid,), verdict)

    def take_out(self, uid: str) -> None:
        """A pod is no pod alone that waits."""
        self._leave(uid)

    def drop(self, uid: str) -> None:
        """A pod waits no more."""
        self.touched.discard(uid)
        self.take_out(uid)
        self.said.forget(uid)

    def _leave(self, uid: str) -> None:
        shape = self._shape_of.pop(uid, None)
        if shape is None:
            return
        shape.drop(uid)
        self.said.leave(uid)
        if not shape:
            self._forget_shape(shape.key)

    def _forget_shape(self, key: ShapeKey) -> None:
        del self._shapes[key]
        self._awake.pop(key, None)
        self._judged_always.pop(key, None)
        self.over_quota.drop(key)
        self.kept_off.drop(key)
        of_class = self._of_class[key.cls]
        del of_class[key]
        if not of_class:
            del self._of_class[key.cls]

    def drop_gang(self, key: Key) -> None:
        """No member of a gang waits any more."""
        self._gangs.pop(key, None)
        self._apart.pop(key, None)
        self.lines.leave(key)
        self._awake_gangs.pop(key, None)
        self._judged_always.pop(key, None)
        self.over_quota.drop(key)
        self.kept_off.drop(key)
        self._counted_at.pop(key, None)

    # --- who sleeps ----------------------------------------------------------------------------------------------
    def shape_failed(self, key: ShapeKey, verdict: Verdict, served: Set[str]) -> None:
        """A shape fits nowhere: all its pods but those ``served`` say so, and what is kept of its class wakes it."""
        shape = self._shapes[key]
        self.said.say_shape(shape, verdict, served=served)
        self.kept_off.drop(key)
        kept = self.unschedulable.get(key.cls)
        if kept is None or key.uid:
            return
        self._awake.pop(key, None)
        if self.unschedulable.is_light(key.cls, kept):
            self._judged_always[key] = None

    def shape_held_back(self, key: ShapeKey, held: HeldBack, *, served: Set[str], elsewhere: Kept | None) -> None:
        """The queue of a shape takes no more: all its pods but those ``served`` say so, and it sleeps until it does.

        ``elsewhere`` as in OverQuota; None: they would use as much on any node.
        """
        shape = self._shapes[key]
        self.said.say_shape(shape, held.verdict, served=served)
        self.kept_off.drop(key)
        self._awake.pop(key, None)
        rank = min((rank for rank in shape.ranks() if rank.uid not in served), default=None)
        if rank is not None:
            self.over_quota.put(key, rank, held.use, elsewhere)

    def shape_kept_off(self, key: ShapeKey, verdict: Verdict, off: Off, *, kept: Kept, served: Set[str]) -> None:
        """A shape fits on nodes that are kept for others only: all its pods but those ``served`` say so, and it sleeps.

        ``kept``: what its class needs.
        """
        self.said.say_shape(self._shapes[key], verdict, served=served)
        self._awake.pop(key, None)
        self._judged_always.pop(key, None)
        self.kept_off.put(key, off, kept)

    def gang_kept_off(self, key: Key, off: Off, kept: Kept | None) -> None:
        """The same for a gang. ``kept``: None where its members are of several classes."""
        self.sleep_gang(key, Until.KEPT_OFF)
        self.kept_off.put(key, off, kept, asks_others=any(map(asks_others, self._gangs[key].classes)))

    def reserve(self, reserves: NodeReserves) -> None:
        """Keep nodes from now on; owners that have lost theirs are decided on again, so that they say why they wait."""
        standing = {reserve.uid for reserve in reserves.of}
        for lost in (reserve for reserve in self.reserves.of if reserve.uid not in standing):
            key, shape = (lost.namespace, lost.name), self._shape_of.get(lost.uid)
            if shape is not None:
                self._wake_shape(shape.key)
            elif lost.is_gang and key in self._gangs:
                self._wake_gang(key)
        self.reserves = reserves

    def wake_kept_off(self, is_starved: Callable[[str, Resources], bool]) -> None:
        """Wake those that may be placed though nodes are kept for others; before each decision."""
        self.wake_held_back(self.kept_off.due(self.reserves.of, is_starved))

    def gang_held_back(self, key: Key, use: Use, rank: Rank, *, elsewhere: KeptGang | None) -> None:
        """The queue of a gang takes no more: it sleeps until it does. ``elsewhere`` as for shapes."""
        self.sleep_gang(key, Until.QUEUE_TAKES)
        self.over_quota.put(key, rank, use, elsewhere)

    def line_up(self, lined: Lined, *, is_counted: bool) -> None:
        """A gang that could not start sleeps behind those that ask the same, and says what they say."""
        key = lined.key
        self._awake_gangs.pop(key, None)
        self._apart.pop(key, None)
        self._counted_at.pop(key, None)
        self.said.say(lined.uids, self.lines.join(lined, is_counted=is_counted), key)

    def alike_failed(self, alike: GangSignature, kept: KeptGang, *, is_counted: bool) -> None:
        """No gang that asks this can start. ``is_counted``: the verdict is of today."""
        self.said.say_again(self.lines.failed(alike, kept, is_counted=is_counted))

    def wake_for_quota(
        self, tree: Tree, cards: Hashable, accounts: Callable[[], Accounts], *, version: int = 0
    ) -> None:
        """Wake those that their queues take now; before each decision. ``cards`` and ``version`` as in ``due``."""
        self.wake_held_back(self.over_quota.due(tree, cards, accounts, version=version))

    def wake_held_back(self, items: Iterable[Item]) -> None:
        """Have them decided on again: their queues may take them, or what they were told is out of date."""
        for item in items:
            self._wake(item)

    def _wake(self, item: Item) -> None:
        if isinstance(item, ShapeKey):
            self._wake_shape(item)
        else:
            self._wake_gang(item)

    def gang_is_of(self, key: Key, classes: tuple[PodClass, ...]) -> None:
        """Of these classes are the members of a gang that may be placed."""
        self._gangs[key].classes = classes

    def sleep_gang(self, key: Key, until: Until, *, is_counted: bool = False) -> None:
        """Leave a gang alone until this, or until something touches it. ``is_counted``: its verdict is of today."""
        gang = self._gangs[key]
        gang.until = until
        self.kept_off.drop(key)
        self.lines.leave(key)
        self._apart[key] = None
        self._awake_gangs.pop(key, None)
        counted_at = self._counted_at.get(key, -1)
        if is_counted or until not in _FOR_ROOM:
            self._counted_at.pop(key, None)
        if until in _FOR_ROOM:
            self._counted_at[key] = self._ledger.changes.last if is_counted else counted_at
        if self._is_light(gang):
            self._judged_always[key] = None

    def _is_light(self, gang: WaitingGang) -> bool:
        if gang.until is not Until.CLASS_FITS:
            of_start = self.unschedulable.get_gang(gang.key) if gang.until is Until.MAY_START else None
            return of_start is not None and self.unschedulable.is_light_gang(of_start)
        kept = [(cls, self.unschedulable.get(cls)) for cls in gang.classes]
        return any(each is None or self.unschedulable.is_light(cls, each) for cls, each in kept)

    def wake(self, generation: int) -> None:
        """Wake what may fit since something on a node has changed."""
        changes = self._ledger.changes
        has_helped = changes.has_helped_since(self._woken_at)
        if has_helped:
            shapes, gangs = [*self._shapes], [*self._apart]
        else:
            shapes = [key for key in self._judged_always if isinstance(key, ShapeKey)]
            gangs = [key for key in self._judged_always if not isinstance(key, ShapeKey)]
        self._woken_at = changes.last
        classes: dict[PodClass, bool] = {}
        for key in shapes:
            if key in self._awake or key in self.over_quota or key in self.kept_off:
                continue
            if self._may_fit(key.cls, generation, classes):
                self._wake_shape(key)
        for name in gangs:
            if name not in self._awake_gangs and self._gang_may_fit(self._gangs[name], generation, classes):
                self._wake_gang(name)
        self.lines.wake(generation, has_helped=has_helped)
        for item in self.over_quota.may_go_elsewhere(self.unschedulable, generation):
            self._wake(item)

    def _may_fit(self, cls: PodClass, generation: int, known: dict[PodClass, bool]) -> bool:
        found = known.get(cls)
        if found is None:
            kept = self.unschedulable.get(cls)
            found = known[cls] = kept is None or self._may_have_room(cls, kept, generation, len(known))
        return found

    def _may_have_room(self, cls: PodClass, kept: Kept, generation: int, compared: int) -> bool:
        if self.unschedulable.is_sure(cls, kept, generation):
            return False
        still = self.unschedulable.still_out(cls, kept) if compared < _COMPARED else None
        if still is not None:
            self.unschedulable.is_surer(cls, still)
        else:
            self.unschedulable.is_woken(cls)
        return still is None

    def _gang_may_fit(self, gang: WaitingGang, generation: int, known: dict[PodClass, bool]) -> bool:
        if gang.until is Until.CLASS_FITS:
            return any(self._may_fit(cls, generation, known) for cls in gang.classes)
        kept = self.unschedulable.get_gang(gang.key) if gang.until is Until.MAY_START else None
        return kept is not None and not self.unschedulable.is_sure_gang(kept, generation)

    def _wake_shape(self, key: ShapeKey) -> None:
        self._judged_always.pop(key, None)
        self.over_quota.drop(key)
        self.kept_off.drop(key)
        self._awake[key] = None

    def _wake_gang(self, key: Key) -> None:
        self._judged_always.pop(key, None)
        self.over_quota.drop(key)
        self.kept_off.drop(key)
        self.lines.leave(key)
        self._apart[key] = None
        self._awake_gangs[key] = None

    # --- what a decision reads -----------------------------------------------------------------------------------
    def awake(self) -> list[Shape]:
        """Shapes that have to be decided on."""
        return [self._shapes[key] for key in self._awake]

    def gang(self, key: Key) -> WaitingGang:
        """A gang of which members wait."""
        return self._gangs[key]

    def awake_gangs(self) -> list[WaitingGang]:
        """Gangs that have to be decided on."""
        return [self._gangs[key] for key in self._awake_gangs]

    def of_class(self, cls: PodClass) -> Iterator[Shape]:
        """Shapes of a class that wait for room on nodes.

        Those that their queues hold back, or that are kept off nodes, say so and nothing else. They are judged again
        on their own (queue.py), which renews no verdict on their class.
        """
        others = (self.over_quota, self.kept_off)
        return (self._shapes[key] for key in self._of_class.get(cls, ()) if not any(key in each for each in others))

    def shapes(self) -> Iterator[Shape]:
        """All shapes, in no order."""
        return iter(self._shapes.values())

    @property
    def shape_keys(self) -> KeysView[ShapeKey]:
        """Of all shapes, in no order."""
        return self._shapes.keys()

    def shape(self, key: ShapeKey) -> Shape:
        """A shape of which pods wait."""
        return self._shapes[key]

    def gangs_for_preemption(self) -> list[Key]:
        """Gangs in no line that sleep for want of room: for their minimum, or for members beyond it."""
        return [key for key in self._apart if self._gangs[key].until in _FOR_ROOM]

    def stale_gangs(self, count: int) -> list[WaitingGang]:
        """Gangs that sleep and whose counts may have changed, those that were counted longest ago.

        Not those whose start costs much: they are tried when they may start, and not for their counts.
        """
        last, pace = self._ledger.changes.last, self.unschedulable.pace
        keys = islice(self._counted_at, LOOKED_AT * count)
        unschedulable = (key for key in keys if key not in self._awake_gangs)
        stale = (key for key in unschedulable if self._counted_at[key] != last and not pace.is_large(key))
        in_lines = self.lines.stale(count - count // 2)
        return [self._gangs[key] for key in (*in_lines, *islice(stale, count - len(in_lines)))]

    def decide_again(self, key: Key) -> None:
        """A gang is decided on again: for the counts in its verdict, or as it was not decided to the end.

        One that stays awake then is decided on whenever anything changes, so its counts need no look of their own.
        """
        self._counted_at.pop(key, None)
        self._wake_gang(key)

    def has_shapes(self, cls: PodClass) -> bool:
        """Whether pods alone of a class wait for room, on nodes or in their queues."""
        return cls in self._of_class

    def waits_for_room(self, cls: PodClass) -> bool:
        """Whether pods alone of a class wait for room on nodes."""
        return any(True for _ in self.of_class(cls))

    def forget_others(self, now_ns: int) -> None:
        """Forget what is kept for classes and gangs of which no pod waits any more, once that is about half."""
        ledger = self._ledger
        if self.unschedulable.pace.is_kept:
            self.unschedulable.pace.keep_only(self._gangs.keys(), now_ns)
        if self.unschedulable.size + ledger.constraints < 2 * (len(self._shapes) + len(self._gangs)) + _FEW:
            return
        classes = {*self._of_class, *(cls for gang in self._gangs.values() for cls in gang.classes)}
        self.unschedulable.keep_only(classes, self._gangs.keys() | self.lines.alikes())
        ledger.forget_constraints({one for cls in classes for one in cls.all_constraints()})
        ledger.forget_profiles({profile for cls in classes for profile in cls.profiles()})

    def gangs(self) -> KeysView[Key]:
        """PodGroups with members that wait."""
        return self._gangs.keys()


_PERIOD_NS: Final = 1_000_000_000
_NONE: Final[Mapping[PodClass, None]] = {}


class Recounts(NamedTuple):
    """What one decision judges again."""

    classes: Mapping[PodClass, None] = _NONE
    gangs: tuple[Key, ...] = ()
    held_back: tuple[ShapeKey | Key, ...] = ()


NO_RECOUNTS: Final = Recounts()


def due_recounts(scheduling_queue: SchedulingQueue, now_ns: int, most: int) -> Recounts:
    """What is judged again now, up to ``most`` classes and gangs, as many of both that queues hold back, or kept off.

    Those gangs and all that is held back or kept off are awake from here on.

    They are brought up to date once a second, as nodes change without helping anybody.
    """
    if now_ns < scheduling_queue.recount_ns:
        return NO_RECOUNTS
    found = _stale(scheduling_queue, most)
    if any(found):
        scheduling_queue.recount_ns = now_ns + _PERIOD_NS
    for key in found.gangs:
        scheduling_queue.decide_again(key)
    scheduling_queue.wake_held_back(found.held_back)
    return found


def next_recount_ns(scheduling_queue: SchedulingQueue, now_ns: int, most: int) -> int | None:
    """When there is something to judge again; None if all counts are of today."""
    if not any(_stale(scheduling_queue, most)):
        return None
    if scheduling_queue.recount_ns <= now_ns:
        scheduling_queue.recount_ns = now_ns + _PERIOD_NS
    return scheduling_queue.recount_ns


def _stale(scheduling_queue: SchedulingQueue, most: int) -> Recounts:
    """Classes and gangs whose counts may have changed, the oldest."""
    gangs = scheduling_queue.stale_gangs(most)
    classes = dict.fromkeys(cls for gang in gangs for cls in gang.classes)
    for cls in scheduling_queue.unschedulable.oldest(most):
        if scheduling_queue.waits_for_room(cls):
            classes[cls] = None
        elif scheduling_queue.has_shapes(cls):
            scheduling_queue.unschedulable.wakes(
                cls
            )  # their queues hold all of them back: they are judged again when these don't
        elif cls not in classes:
            scheduling_queue.unschedulable.wakes(
                cls
            )  # nobody waits with it: the next pod must not get an old verdict on nodes
    held_back = (*scheduling_queue.over_quota.outdated(most), *scheduling_queue.kept_off.outdated(most))
    return Recounts(classes, tuple(gang.key for gang in gangs), held_back)
