"""What a decision may learn of those that wait, a value each: they are taken into the backlog after the decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from scheduler.core.backlog.asleep import Kept, KeptGang
from scheduler.core.backlog.backlog import Backlog
from scheduler.core.backlog.gang_lines import Alike, Lined
from scheduler.core.backlog.kept_off import Off
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


class Note(Protocol):
    """One thing that was learned; a value."""

    def take(self, backlog: Backlog) -> None:
        """Take it into the backlog that the decision read."""
        ...


class Said(msgspec.Struct, frozen=True):
    """These pods have this verdict, as members of this PodGroup if one is named. ``lasts`` as in ``Sayings.say``."""

    uids: tuple[str, ...]
    verdict: Verdict
    pod_group: Key | None
    lasts: bool = False

    def take(self, backlog: Backlog) -> None:
        """Have them say it."""
        backlog.said.say(self.uids, self.verdict, self.pod_group, lasts=self.lasts)


class ShapeFailed(msgspec.Struct, frozen=True):
    """A shape fits nowhere: all its pods but those that were ``served`` have this verdict, and it sleeps."""

    key: ShapeKey
    verdict: Verdict
    served: frozenset[str]

    def take(self, backlog: Backlog) -> None:
        """Have them say it."""
        backlog.shape_failed(self.key, self.verdict, self.served)


class ShapeHeldBack(msgspec.Struct, frozen=True):
    """The queue of a shape takes no more: all its pods but those that were ``served`` say so."""

    key: ShapeKey
    held: HeldBack
    served: frozenset[str]
    elsewhere: Kept | None

    def take(self, backlog: Backlog) -> None:
        """Have them say it, and sleep until the queue takes more."""
        backlog.shape_held_back(self.key, self.held, served=self.served, elsewhere=self.elsewhere)


class GangHeldBack(msgspec.Struct, frozen=True):
    """The queue of a gang takes no more."""

    key: Key
    use: Use
    rank: Rank
    elsewhere: KeptGang | None

    def take(self, backlog: Backlog) -> None:
        """Let it sleep until the queue takes that much."""
        backlog.gang_held_back(self.key, self.use, self.rank, elsewhere=self.elsewhere)


class ShapeKeptOff(msgspec.Struct, frozen=True):
    """A shape fits on nodes that are kept for others only: all its pods but those that were ``served`` say so."""

    key: ShapeKey
    verdict: Verdict
    off: Off
    kept: Kept
    served: frozenset[str]

    def take(self, backlog: Backlog) -> None:
        """Have them say it, and sleep until they may be placed there, or elsewhere."""
        backlog.shape_kept_off(self.key, self.verdict, self.off, kept=self.kept, served=self.served)


class GangKeptOff(msgspec.Struct, frozen=True):
    """The same of a gang. ``kept``: None where its members are of several classes."""

    key: Key
    off: Off
    kept: Kept | None

    def take(self, backlog: Backlog) -> None:
        """Let it sleep until it may be placed there, or elsewhere."""
        backlog.gang_kept_off(self.key, self.off, self.kept)


class BerthsLooked(msgspec.Struct, frozen=True):
    """Nodes are kept for these groups from now on."""

    berths: Berths

    def take(self, backlog: Backlog) -> None:
        """Keep them."""
        backlog.berths = self.berths


class Misfiled(msgspec.Struct, frozen=True):
    """A pod is not of the shape that it waits in any more."""

    uid: str

    def take(self, backlog: Backlog) -> None:
        """Have it filed again."""
        backlog.touch(self.uid)


class GangSlept(msgspec.Struct, frozen=True):
    """There is nothing to decide on a gang (``Backlog.sleep_gang``)."""

    key: Key
    until: Until
    is_counted: bool

    def take(self, backlog: Backlog) -> None:
        """Let it sleep."""
        backlog.sleep_gang(self.key, self.until, is_counted=self.is_counted)


class GangLeft(msgspec.Struct, frozen=True):
    """A gang is left to the next decision."""

    key: Key

    def take(self, backlog: Backlog) -> None:
        """Have it awake."""
        backlog.decide_again(self.key)


class GangLooked(msgspec.Struct, frozen=True):
    """Of these classes are the members of a gang that may be placed."""

    key: Key
    classes: tuple[PodClass, ...]

    def take(self, backlog: Backlog) -> None:
        """Keep what has to fit for the gang to go on."""
        backlog.gang_is_of(self.key, self.classes)


class GangGone(msgspec.Struct, frozen=True):
    """No member of a gang waits any more."""

    key: Key

    def take(self, backlog: Backlog) -> None:
        """Forget it."""
        backlog.drop_gang(self.key)


class WakeAt(msgspec.Struct, frozen=True):
    """A pod or a gang is looked at again when this time has come."""

    at_ns: int
    item: str | Key

    def take(self, backlog: Backlog) -> None:
        """Set the timer."""
        backlog.wake_at(self.at_ns, self.item)


class SearchOn(msgspec.Struct, frozen=True):
    """A search for devices was cut short: it goes on when this time has come, if nothing happens before."""

    at_ns: int

    def take(self, backlog: Backlog) -> None:
        """Set the time, if none is set."""
        if backlog.search_on_ns is None:
            backlog.search_on_ns = self.at_ns


class ClassFailed(msgspec.Struct, frozen=True):
    """A class fits nowhere; ``is_told``: judged now, else compared only (``Asleep.still_out``)."""

    cls: PodClass
    kept: Kept
    is_told: bool

    def take(self, backlog: Backlog) -> None:
        """Keep it."""
        if self.is_told:
            backlog.asleep.put(self.cls, self.kept)
        else:
            backlog.asleep.is_surer(self.cls, self.kept)


class ClassFits(msgspec.Struct, frozen=True):
    """A pod of this class was placed."""

    cls: PodClass

    def take(self, backlog: Backlog) -> None:
        """Forget that it fitted nowhere."""
        backlog.asleep.wakes(self.cls)


class GangFailed(msgspec.Struct, frozen=True):
    """A gang could not start."""

    key: Key
    kept: KeptGang

    def take(self, backlog: Backlog) -> None:
        """Keep it."""
        backlog.asleep.put_gang(self.key, self.kept)


class AlikeFailed(msgspec.Struct, frozen=True):
    """A gang could not start, so no other that asks the same can."""

    alike: Alike
    kept: KeptGang
    is_counted: bool

    def take(self, backlog: Backlog) -> None:
        """Keep it for all of them."""
        backlog.alike_failed(self.alike, self.kept, is_counted=self.is_counted)


class LinedUp(msgspec.Struct, frozen=True):
    """A gang stands behind those that ask the same."""

    lined: Lined
    is_counted: bool

    def take(self, backlog: Backlog) -> None:
        """Let it sleep there."""
        backlog.line_up(self.lined, is_counted=self.is_counted)


class StartFailed(msgspec.Struct, frozen=True):
    """What the start of a gang has cost in vain (gang_pace.py)."""

    key: Key
    operations: int
    now_ns: int

    def take(self, backlog: Backlog) -> None:
        """Have such starts pause."""
        backlog.asleep.pace.failed(self.key, self.operations, self.now_ns)


class StaleLooked(msgspec.Struct, frozen=True):
    """Gangs below their minimum were looked at."""

    memo: StaleMemo

    def take(self, backlog: Backlog) -> None:
        """Remember when that is to be done again."""
        backlog.stale = self.memo


class RoomLooked(msgspec.Struct, frozen=True):
    """Room was looked for, or it was not the time for that."""

    memo: RoomMemo

    def take(self, backlog: Backlog) -> None:
        """Remember who was refused."""
        backlog.room = self.memo
        backlog.ask_anew.clear()


class IntentsLooked(msgspec.Struct, frozen=True):
    """Standing intents were looked at; these (ids) are looked at again in the next decision."""

    awake: tuple[str, ...]

    def take(self, backlog: Backlog) -> None:
        """Let the others rest."""
        backlog.resting.looked(self.awake)


class Returning(msgspec.Struct, frozen=True):
    """Pods that were moved are gone since then; places are kept for their successors."""

    since: Mapping[str, int]

    def take(self, backlog: Backlog) -> None:
        """Remember it."""
        backlog.returning = self.since
