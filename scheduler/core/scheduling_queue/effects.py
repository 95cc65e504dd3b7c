"""Effects of a decision on the scheduling queue: noted as it goes, a value each, and taken into the queue after it.

So a decision changes nothing that it reads: deciding twice on the same gives the same plan and the same effects. What
the rest of the decision has to know at once is read here, in the queue's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from copy import deepcopy
from typing import Protocol

import msgspec

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.stale import StaleMemo
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import HeldBack, Use
from scheduler.core.queues.reserved_nodes import NodeReserves
from scheduler.core.scheduling_queue.gang_signatures import GangSignature, Lined, Until
from scheduler.core.scheduling_queue.held_back import Off
from scheduler.core.scheduling_queue.queue import SchedulingQueue
from scheduler.core.scheduling_queue.signatures import PreemptionMemo, ShapeKey
from scheduler.core.scheduling_queue.unschedulable import LARGE, GangPace, Kept, KeptGang
from scheduler.core.scheduling_queue.verdicts import Key


class Effect(Protocol):
    """One thing that was learned; a value."""

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Take it into the scheduling queue that the decision read."""
        ...


class Said(msgspec.Struct, frozen=True):
    """These pods have this verdict, as members of this PodGroup if one is named. ``lasts`` as in ``Verdicts.say``."""

    uids: tuple[str, ...]
    verdict: Verdict
    pod_group: Key | None
    lasts: bool = False

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Have them say it."""
        scheduling_queue.said.say(self.uids, self.verdict, self.pod_group, lasts=self.lasts)


class ShapeFailed(msgspec.Struct, frozen=True):
    """A shape fits nowhere: all its pods but those that were ``served`` have this verdict, and it sleeps."""

    key: ShapeKey
    verdict: Verdict
    served: frozenset[str]

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Have them say it."""
        scheduling_queue.shape_failed(self.key, self.verdict, self.served)


class ShapeHeldBack(msgspec.Struct, frozen=True):
    """The queue of a shape takes no more: all its pods but those that were ``served`` say so."""

    key: ShapeKey
    held: HeldBack
    served: frozenset[str]
    elsewhere: Kept | None

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Have them say it, and sleep until the queue takes more."""
        scheduling_queue.shape_held_back(self.key, self.held, served=self.served, elsewhere=self.elsewhere)


class GangHeldBack(msgspec.Struct, frozen=True):
    """The queue of a gang takes no more."""

    key: Key
    use: Use
    rank: Rank
    elsewhere: KeptGang | None

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Let it sleep until the queue takes that much."""
        scheduling_queue.gang_held_back(self.key, self.use, self.rank, elsewhere=self.elsewhere)


class ShapeKeptOff(msgspec.Struct, frozen=True):
    """A shape fits on nodes that are kept for others only: all its pods but those that were ``served`` say so."""

    key: ShapeKey
    verdict: Verdict
    off: Off
    kept: Kept
    served: frozenset[str]

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Have them say it, and sleep until they may be placed there, or elsewhere."""
        scheduling_queue.shape_kept_off(self.key, self.verdict, self.off, kept=self.kept, served=self.served)


class GangKeptOff(msgspec.Struct, frozen=True):
    """The same of a gang. ``kept``: None where its members are of several classes."""

    key: Key
    off: Off
    kept: Kept | None

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Let it sleep until it may be placed there, or elsewhere."""
        scheduling_queue.gang_kept_off(self.key, self.off, self.kept)


class ReservesLooked(msgspec.Struct, frozen=True):
    """Nodes are kept for these groups from now on."""

    reserves: NodeReserves

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Keep them."""
        scheduling_queue.reserve(self.reserves)


class SignatureChanged(msgspec.Struct, frozen=True):
    """A pod is not of the shape that it waits in any more."""

    uid: str

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Have it filed again."""
        scheduling_queue.touch(self.uid)


class GangSlept(msgspec.Struct, frozen=True):
    """There is nothing to decide on a gang (``SchedulingQueue.sleep_gang``)."""

    key: Key
    until: Until
    is_counted: bool

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Let it sleep."""
        scheduling_queue.sleep_gang(self.key, self.until, is_counted=self.is_counted)


class GangLeft(msgspec.Struct, frozen=True):
    """A gang is left to the next decision."""

    key: Key

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Have it awake."""
        scheduling_queue.decide_again(self.key)


class GangLooked(msgspec.Struct, frozen=True):
    """Of these classes are the members of a gang that may be placed."""

    key: Key
    classes: tuple[PodClass, ...]

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Keep what has to fit for the gang to go on."""
        scheduling_queue.gang_is_of(self.key, self.classes)


class GangGone(msgspec.Struct, frozen=True):
    """No member of a gang waits any more."""

    key: Key

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Forget it."""
        scheduling_queue.drop_gang(self.key)


class WakeAt(msgspec.Struct, frozen=True):
    """A pod or a gang is looked at again when this time has come."""

    at_ns: int
    item: str | Key

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Set the timer."""
        scheduling_queue.wake_at(self.at_ns, self.item)


class SearchOn(msgspec.Struct, frozen=True):
    """A search for devices was cut short: it goes on when this time has come, if nothing happens before."""

    at_ns: int

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Set the time, if none is set."""
        if scheduling_queue.search_on_ns is None:
            scheduling_queue.search_on_ns = self.at_ns


class ClassFailed(msgspec.Struct, frozen=True):
    """A class fits nowhere; ``is_told``: judged now, else compared only (``Unschedulable.still_out``)."""

    cls: PodClass
    kept: Kept
    is_told: bool

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Keep it."""
        if self.is_told:
            scheduling_queue.unschedulable.put(self.cls, self.kept)
        else:
            scheduling_queue.unschedulable.is_surer(self.cls, self.kept)


class ClassFits(msgspec.Struct, frozen=True):
    """A pod of this class was placed."""

    cls: PodClass

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Forget that it fitted nowhere."""
        scheduling_queue.unschedulable.wakes(self.cls)


class GangFailed(msgspec.Struct, frozen=True):
    """A gang could not start."""

    key: Key
    kept: KeptGang

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Keep it."""
        scheduling_queue.unschedulable.put_gang(self.key, self.kept)


class AlikeFailed(msgspec.Struct, frozen=True):
    """A gang could not start, so no other that asks the same can."""

    alike: GangSignature
    kept: KeptGang
    is_counted: bool

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Keep it for all of them."""
        scheduling_queue.alike_failed(self.alike, self.kept, is_counted=self.is_counted)


class GangQueued(msgspec.Struct, frozen=True):
    """A gang stands behind those that ask the same."""

    lined: Lined
    is_counted: bool

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Let it sleep there."""
        scheduling_queue.line_up(self.lined, is_counted=self.is_counted)


class StartFailed(msgspec.Struct, frozen=True):
    """What the start of a gang has cost in vain (unschedulable.py)."""

    key: Key
    operations: int
    now_ns: int

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Have such starts pause."""
        scheduling_queue.unschedulable.pace.failed(self.key, self.operations, self.now_ns)


class StaleLooked(msgspec.Struct, frozen=True):
    """Gangs below their minimum were looked at."""

    memo: StaleMemo

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Remember when that is to be done again."""
        scheduling_queue.stale = self.memo


class PreemptionLooked(msgspec.Struct, frozen=True):
    """Room was looked for, or it was not the time for that."""

    memo: PreemptionMemo

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Remember who was refused."""
        scheduling_queue.preemption = self.memo
        scheduling_queue.retry_preemption.clear()


class NominationsLooked(msgspec.Struct, frozen=True):
    """Standing nominations were looked at; these (ids) are looked at again in the next decision."""

    awake: tuple[str, ...]

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Let the others rest."""
        scheduling_queue.resting.looked(self.awake)


class Returning(msgspec.Struct, frozen=True):
    """Pods that were moved are gone since then; places are kept for their successors."""

    since: Mapping[str, int]

    def take(self, scheduling_queue: SchedulingQueue) -> None:
        """Remember it."""
        scheduling_queue.returning = self.since


class Effects:
    """Notes of the decision under way, in order."""

    __slots__ = ("_alike", "_classes", "_gangs", "_pace", "_scheduling_queue", "taken")

    def __init__(self, scheduling_queue: SchedulingQueue) -> None:
        self._scheduling_queue = scheduling_queue
        self.taken: list[Effect] = []
        self._classes: dict[PodClass, Kept | None] = {}
        self._gangs: dict[Key, KeptGang] = {}
        self._alike: dict[GangSignature, KeptGang] = {}
        self._pace: GangPace | None = None

    # --- what pods say -------------------------------------------------------------------------------------------
    def say(self, uids: Iterable[str], verdict: Verdict, pod_group: Key | None = None, *, lasts: bool = False) -> None:
        """These pods have this verdict from now on."""
        self.taken.append(Said(tuple(uids), verdict, pod_group, lasts))

    def shape_failed(self, key: ShapeKey, verdict: Verdict, *, served: Set[str]) -> None:
        """All pods of a shape but those that were ``served`` have this verdict from now on."""
        self.taken.append(ShapeFailed(key, verdict, frozenset(served)))

    def shape_held_back(self, key: ShapeKey, held: HeldBack, *, served: Set[str], elsewhere: Kept | None) -> None:
        """The queue of a shape takes no more. ``elsewhere``: unless on another node (held_back.py)."""
        self.taken.append(ShapeHeldBack(key, held, frozenset(served), elsewhere))

    def gang_held_back(self, key: Key, use: Use, rank: Rank, *, elsewhere: KeptGang | None) -> None:
        """The queue of a gang takes no more. ``elsewhere`` as for shapes."""
        self.taken.append(GangHeldBack(key, use, rank, elsewhere))

    def shape_kept_off(self, key: ShapeKey, verdict: Verdict, off: Off, *, kept: Kept, served: Set[str]) -> None:
        """A shape fits on nodes that are kept for others only."""
        self.taken.append(ShapeKeptOff(key, verdict, off, kept, frozenset(served)))

    def gang_kept_off(self, key: Key, off: Off, *, kept: Kept | None) -> None:
        """A gang would fit if it were not for nodes that are kept for others."""
        self.taken.append(GangKeptOff(key, off, kept))

    def reserves_looked(self, reserves: NodeReserves) -> None:
        """Keep nodes for these groups from now on."""
        self.taken.append(ReservesLooked(reserves))

    def misfiled(self, uid: str) -> None:
        """A pod is not of the shape that it waits in any more."""
        self.taken.append(SignatureChanged(uid))

    # --- when who is decided on again ----------------------------------------------------------------------------
    def sleep_gang(self, key: Key, until: Until, *, is_counted: bool = False) -> None:
        """Leave a gang alone until this, or until something touches it."""
        self.taken.append(GangSlept(key, until, is_counted))

    def leave_gang(self, key: Key) -> None:
        """Leave a gang to the next decision."""
        self.taken.append(GangLeft(key))

    def gang_is_of(self, key: Key, classes: tuple[PodClass, ...]) -> None:
        """Of these classes are the members of a gang that may be placed."""
        self.taken.append(GangLooked(key, classes))

    def drop_gang(self, key: Key) -> None:
        """No member of a gang waits any more."""
        self.taken.append(GangGone(key))

    def wake_at(self, at_ns: int, item: str | Key) -> None:
        """Touch a pod or a gang when this time has come."""
        self.taken.append(WakeAt(at_ns, item))

    def search_on(self, at_ns: int) -> None:
        """Have searches for devices that were cut short go on when this time has come."""
        self.taken.append(SearchOn(at_ns))

    # --- what fits nowhere ---------------------------------------------------------------------------------------
    def kept(self, cls: PodClass) -> Kept | None:
        """What is kept of a class, as of now."""
        return self._classes[cls] if cls in self._classes else self._scheduling_queue.unschedulable.get(cls)

    def failed(self, cls: PodClass, kept: Kept, *, is_told: bool) -> None:
        """Keep the verdict on a class; ``is_told``: it was judged, else compared only."""
        self._classes[cls] = kept
        self.taken.append(ClassFailed(cls, kept, is_told))

    def fits(self, cls: PodClass) -> None:
        """A pod of a class was placed."""
        if self.kept(cls) is not None:
            self._classes[cls] = None
            self.taken.append(ClassFits(cls))

    def kept_gang(self, key: Key) -> KeptGang | None:
        """What is kept of a gang, as of now."""
        return self._gangs.get(key) or self._scheduling_queue.unschedulable.get_gang(key)

    def gang_failed(self, key: Key, kept: KeptGang) -> None:
        """Keep the verdict on a gang that could not start."""
        self._gangs[key] = kept
        self.taken.append(GangFailed(key, kept))

    def kept_alike(self, alike: GangSignature) -> KeptGang | None:
        """What is kept of gangs that ask this, as of now."""
        return self._alike.get(alike) or self._scheduling_queue.unschedulable.get_gang(alike)

    def has_failed(self, alike: GangSignature) -> bool:
        """Whether a gang that asks this could not start in this decision, so that no other can."""
        return alike in self._alike

    def alike_failed(self, alike: GangSignature, kept: KeptGang, *, is_counted: bool) -> None:
        """Keep the verdict on a gang that could not start for all that ask the same."""
        self._alike[alike] = kept
        self.taken.append(AlikeFailed(alike, kept, is_counted))

    def line_up(self, lined: Lined, *, is_counted: bool) -> None:
        """Let a gang sleep behind those that ask the same."""
        self.taken.append(GangQueued(lined, is_counted))

    def preemption_looked(self, memo: PreemptionMemo) -> None:
        """Remember what was looked for, and when that is to be done again."""
        self.taken.append(PreemptionLooked(memo))

    def stale_looked(self, memo: StaleMemo) -> None:
        """Remember when gangs below their minimum are to be looked at again."""
        self.taken.append(StaleLooked(memo))

    def nominations_looked(self, awake: Iterable[str]) -> None:
        """Let standing nominations rest but for these (ids)."""
        self.taken.append(NominationsLooked(tuple(awake)))

    def returning(self, since: Mapping[str, int]) -> None:
        """Remember since when pods are gone that were moved."""
        self.taken.append(Returning(since))

    @property
    def pace(self) -> GangPace:
        """When large starts may be tried, as of now. To be read only."""
        return self._pace or self._scheduling_queue.unschedulable.pace

    def start_failed(self, key: Key, operations: int, now_ns: int) -> None:
        """Note what a start has cost that failed."""
        if operations <= LARGE and not self.pace.is_large(key):
            return
        if self._pace is None:
            self._pace = deepcopy(self._scheduling_queue.unschedulable.pace)
        self._pace.failed(key, operations, now_ns)
        self.taken.append(StartFailed(key, operations, now_ns))
