"""What one decision learns of those that wait: noted as it goes, and taken into the backlog after it.

So a decision changes nothing that it reads: deciding twice on the same gives the same plan and the same notes. What
the rest of the decision has to know at once is read here, in the backlog's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from copy import deepcopy

from scheduler.core.backlog.asleep import Kept, KeptGang
from scheduler.core.backlog.backlog import Backlog
from scheduler.core.backlog.gang_lines import Alike, Lined
from scheduler.core.backlog.gang_pace import LARGE, GangPace
from scheduler.core.backlog.kept_off import Off
from scheduler.core.backlog.learned import (
    AlikeFailed,
    BerthsLooked,
    ClassFailed,
    ClassFits,
    GangFailed,
    GangGone,
    GangHeldBack,
    GangKeptOff,
    GangLeft,
    GangLooked,
    GangSlept,
    IntentsLooked,
    LinedUp,
    Misfiled,
    Note,
    Returning,
    RoomLooked,
    Said,
    SearchOn,
    ShapeFailed,
    ShapeHeldBack,
    ShapeKeptOff,
    StaleLooked,
    StartFailed,
    WakeAt,
)
from scheduler.core.backlog.room_memo import RoomMemo
from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.backlog.waiting_gang import Until
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.stale import StaleMemo
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import HeldBack, Use
from scheduler.core.queues.reserved_nodes import Berths


class Notes:
    """Notes of the decision under way, in order."""

    __slots__ = ("_alike", "_backlog", "_classes", "_gangs", "_pace", "taken")

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self.taken: list[Note] = []
        self._classes: dict[PodClass, Kept | None] = {}
        self._gangs: dict[Key, KeptGang] = {}
        self._alike: dict[Alike, KeptGang] = {}
        self._pace: GangPace | None = None

    # --- what pods say -------------------------------------------------------------------------------------------
    def say(self, uids: Iterable[str], verdict: Verdict, pod_group: Key | None = None, *, lasts: bool = False) -> None:
        """These pods have this verdict from now on."""
        self.taken.append(Said(tuple(uids), verdict, pod_group, lasts))

    def shape_failed(self, key: ShapeKey, verdict: Verdict, *, served: Set[str]) -> None:
        """All pods of a shape but those that were ``served`` have this verdict from now on."""
        self.taken.append(ShapeFailed(key, verdict, frozenset(served)))

    def shape_held_back(self, key: ShapeKey, held: HeldBack, *, served: Set[str], elsewhere: Kept | None) -> None:
        """The queue of a shape takes no more. ``elsewhere``: unless on another node (quota_sleepers.py)."""
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

    def berths_looked(self, berths: Berths) -> None:
        """Keep nodes for these groups from now on."""
        self.taken.append(BerthsLooked(berths))

    def misfiled(self, uid: str) -> None:
        """A pod is not of the shape that it waits in any more."""
        self.taken.append(Misfiled(uid))

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
        return self._classes[cls] if cls in self._classes else self._backlog.asleep.get(cls)

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
        return self._gangs.get(key) or self._backlog.asleep.get_gang(key)

    def gang_failed(self, key: Key, kept: KeptGang) -> None:
        """Keep the verdict on a gang that could not start."""
        self._gangs[key] = kept
        self.taken.append(GangFailed(key, kept))

    def kept_alike(self, alike: Alike) -> KeptGang | None:
        """What is kept of gangs that ask this, as of now."""
        return self._alike.get(alike) or self._backlog.asleep.get_gang(alike)

    def has_failed(self, alike: Alike) -> bool:
        """Whether a gang that asks this could not start in this decision, so that no other can."""
        return alike in self._alike

    def alike_failed(self, alike: Alike, kept: KeptGang, *, is_counted: bool) -> None:
        """Keep the verdict on a gang that could not start for all that ask the same."""
        self._alike[alike] = kept
        self.taken.append(AlikeFailed(alike, kept, is_counted))

    def line_up(self, lined: Lined, *, is_counted: bool) -> None:
        """Let a gang sleep behind those that ask the same."""
        self.taken.append(LinedUp(lined, is_counted))

    def room_looked(self, memo: RoomMemo) -> None:
        """Remember what was looked for, and when that is to be done again."""
        self.taken.append(RoomLooked(memo))

    def stale_looked(self, memo: StaleMemo) -> None:
        """Remember when gangs below their minimum are to be looked at again."""
        self.taken.append(StaleLooked(memo))

    def intents_looked(self, awake: Iterable[str]) -> None:
        """Let standing intents rest but for these (ids)."""
        self.taken.append(IntentsLooked(tuple(awake)))

    def returning(self, since: Mapping[str, int]) -> None:
        """Remember since when pods are gone that were moved."""
        self.taken.append(Returning(since))

    @property
    def pace(self) -> GangPace:
        """When large starts may be tried, as of now. To be read only."""
        return self._pace or self._backlog.asleep.pace

    def start_failed(self, key: Key, operations: int, now_ns: int) -> None:
        """Note what a start has cost that failed."""
        if operations <= LARGE and not self.pace.is_large(key):
            return
        if self._pace is None:
            self._pace = deepcopy(self._backlog.asleep.pace)
        self._pace.failed(key, operations, now_ns)
        self.taken.append(StartFailed(key, operations, now_ns))
