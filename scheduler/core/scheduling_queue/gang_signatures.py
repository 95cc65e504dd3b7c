"""Gangs of which members wait, and lines of those that ask the same: of one queue, by rank.

Gangs that ask the same start or fail alike on the same nodes, so the first of a line speaks for all behind it, and one
verdict is kept for all lines that ask it. When a GPU comes free, ten thousand gangs of eight kinds cost eight looks.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from scheduler.core.model.minimum_tree import MinimumTree
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.scheduling_queue.signatures import Ranked
from scheduler.core.scheduling_queue.unschedulable import LOOKED_AT, KeptGang, Unschedulable
from scheduler.core.scheduling_queue.verdicts import Key, Shared


class Until(enum.Enum):
    """What wakes a gang that sleeps, beside each change that touches it."""

    #: Nothing else: no node can help it now.
    TOUCHED = enum.auto()
    #: One of the classes of its members may fit: its minimum runs, and members beyond it wait.
    CLASS_FITS = enum.auto()
    #: What is kept of its last start does not hold any more.
    MAY_START = enum.auto()
    #: Its queue takes what it would use.
    QUEUE_TAKES = enum.auto()
    #: Nodes on which it would fit are kept for others no more, or other nodes may help.
    KEPT_OFF = enum.auto()


@dataclass(slots=True)
class WaitingGang:
    """Members of a gang that wait. ``classes``: of those that were looked at last."""

    key: Key
    classes: tuple[PodClass, ...] = ()
    until: Until = Until.TOUCHED


#: As for classes (scheduling queue.py).
_COMPARED: Final = 1_000


class GangSignature(NamedTuple):
    """All that the start of a gang depends on beside the nodes, of one none of whose members has a node yet.

    ``members``: classes and subgroups in the order of members, each with how many of them follow each other.
    ``places``: what they ask of places, and the Topologies that this names; () if they ask nothing.
    """

    minimum: int
    total: int
    tree: MinimumTree
    members: tuple[tuple[PodClass, str, int], ...]
    places: Hashable = ()


class LineKey(NamedTuple):
    """``is_fixed``: none of the members that start them can be preempted, which counts in their queue."""

    namespace: str
    queue: str
    is_fixed: bool
    alike: GangSignature


class Lined(NamedTuple):
    """A gang and its place. ``needed``: classes of the members that start it; ``uids``: of all that wait."""

    key: Key
    rank: Rank
    line: LineKey
    needed: tuple[tuple[PodClass, int], ...]
    uids: tuple[str, ...]


class GangLine(Ranked):
    """One line. ``needed`` as in ``Lined``: equal for all in it."""

    __slots__ = ("_key_of", "key", "needed")

    def __init__(self, key: LineKey, needed: tuple[tuple[PodClass, int], ...]) -> None:
        super().__init__()
        self.key, self.needed = key, needed
        self._key_of: dict[str, Key] = {}

    def put(self, lined: Lined) -> None:
        """Take a gang."""
        self.put_rank(lined.rank)
        self._key_of[lined.rank.uid] = lined.key

    def leave(self, uid: str) -> None:
        """A gang stands here no more."""
        self.drop(uid)
        self._key_of.pop(uid, None)

    def with_all(self, lined: Sequence[Lined]) -> GangLine:
        """The line as it is with these gangs added; itself if there are none."""
        if not lined:
            return self
        made = GangLine(self.key, self.needed)
        made.copy_ranks(self)
        made._key_of = self._key_of.copy()
        for each in lined:
            made.put(each)
        return made

    def gang(self, rank: Rank) -> Key:
        """The gang of this rank."""
        return self._key_of[rank.uid]

    def gangs(self) -> Collection[Key]:
        """All that stand here, in no order."""
        return self._key_of.values()


class GangLines:
    """All lines. What is kept of those that ask the same is in ``unschedulable``, by ``GangSignature``."""

    def __init__(self, ledger: Ledger, unschedulable: Unschedulable) -> None:
        self._ledger, self._asleep = ledger, unschedulable
        self._lines: dict[LineKey, GangLine] = {}
        self._of: dict[GangSignature, dict[LineKey, None]] = {}
        self._places: dict[Key, Lined] = {}
        self._awake: dict[GangSignature, None] = {}
        #: Of those asleep: what can wake without any node having got more.
        self._light: dict[GangSignature, None] = {}
        self._said: dict[GangSignature, Shared] = {}
        #: The change of the ledger that the counts in their verdict are of, oldest first.
        self._counted_at: dict[GangSignature, int] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def line_of(self, key: Key) -> LineKey | None:
        """The line in which a gang is; None: in none."""
        lined = self._places.get(key)
        return None if lined is None else lined.line

    def alikes(self) -> set[GangSignature]:
        """What is asked by those that are in lines."""
        return set(self._of)

    # --- who stands where ----------------------------------------------------------------------------------------
    def join(self, lined: Lined, *, is_counted: bool) -> Shared:
        """Take a gang into its line; return what it says together with all that ask the same.

        ``is_counted``: the counts in that are of today. Where others stand already they are as good as theirs.
        """
        self.leave(lined.key)
        alike = lined.line.alike
        line = self._lines.get(lined.line)
        if line is None:
            line = self._lines[lined.line] = GangLine(lined.line, lined.needed)
            self._of.setdefault(alike, {})[lined.line] = None
        line.put(lined)
        self._places[lined.key] = lined
        kept = self._asleep.get_gang(alike)
        if kept is None:
            raise LookupError("a gang joins a line, and nothing is kept of what it asks")
        if alike not in self._said:
            self._said[alike] = Shared(kept.verdict)
            self._counted_at[alike] = self._ledger.changes.last if is_counted else -1
            self._note_weight(alike, kept)
        return self._said[alike]

    def leave(self, key: Key) -> None:
        """A gang is in no line any more."""
        lined = self._places.pop(key, None)
        if lined is None:
            return
        line, alike = self._lines[lined.line], lined.line.alike
        line.leave(lined.rank.uid)
        if line:
            return
        del self._lines[lined.line]
        del self._of[alike][lined.line]
        if not self._of[alike]:
            del self._of[alike], self._said[alike], self._counted_at[alike]
            self._awake.pop(alike, None)
            self._light.pop(alike, None)

    # --- who sleeps ----------------------------------------------------------------------------------------------
    def failed(self, alike: GangSignature, kept: KeptGang, *, is_counted: bool) -> list[str]:
        """The first that asked this could not start, so none can; return the pods (UIDs) that have news by that."""
        self._asleep.put_gang(alike, kept)
        if alike not in self._of:
            return []
        self._awake.pop(alike, None)
        self._note_weight(alike, kept)
        if is_counted:
            del self._counted_at[alike]
            self._counted_at[alike] = self._ledger.changes.last
        shared = self._said[alike]
        before, shared.verdict = shared.verdict, kept.verdict
        if before.reasons == kept.verdict.reasons:
            return []
        gangs = (key for line in self._of[alike] for key in self._lines[line].gangs())
        return [uid for key in gangs for uid in self._places[key].uids]

    def wake(self, generation: int, *, has_helped: bool) -> None:
        """Wake what may start since something on a node has changed."""
        compared = 0
        for alike in [*self._of] if has_helped else [*self._light]:
            kept = None if alike in self._awake else self._asleep.get_gang(alike)
            if kept is None or self._asleep.is_sure_gang(kept, generation):
                continue
            compared += 1
            still = self._asleep.still_out_gang(kept) if compared <= _COMPARED else None
            if still is None:
                self._awake[alike] = None
                self._light.pop(alike, None)
            else:
                self._asleep.put_gang(alike, still)
                self._note_weight(alike, still)

    def _note_weight(self, alike: GangSignature, kept: KeptGang) -> None:
        if self._asleep.is_light_gang(kept):
            self._light[alike] = None
        else:
            self._light.pop(alike, None)

    # --- what a decision reads -----------------------------------------------------------------------------------
    def awake(self) -> list[GangLine]:
        """Lines whose first has to be decided on."""
        return [self._lines[line] for alike in self._awake for line in self._of[alike]]

    def all(self) -> list[GangLine]:
        """All lines, in no order."""
        return list(self._lines.values())

    def stale(self, count: int) -> list[Key]:
        """A gang of each of those asleep whose counts may have changed, that were counted longest ago."""
        last, looked_at = self._ledger.changes.last, islice(self._counted_at, LOOKED_AT * count)
        stale = (each for each in looked_at if self._counted_at[each] != last and each not in self._awake)
        return list(islice(self._one_of(stale), count))

    def _one_of(self, alikes: Iterator[GangSignature]) -> Iterator[Key]:
        lines = (self._lines[next(iter(self._of[alike]))] for alike in alikes)
        return (next(iter(line.gangs())) for line in lines)
