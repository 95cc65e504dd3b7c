"""How many pods of a class each node holds (slots.py), kept while a search tries one change after the other.

Only nodes that the statement has touched since are counted again: a group that is moved changes two or three of them.
The classes that were asked for last are kept. Another one is counted again on all nodes, which takes about twice as
long as on three, so a look at very many classes goes on, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.table import Bools, Int64s, Selection
from scheduler.core.room.slots import may_be, of_way
from scheduler.core.snapshot.statement import Statement

_EVERYWHERE: Final = slice(None)
#: More pods than that on one node are not told apart, so that sums stay small.
AS_MANY: Final = 1 << 20
#: Beyond this part of the nodes all are counted: that is one pass over columns.
_MOST_PART: Final = 4
#: Classes that are kept: one takes 9 bytes for each node.
_MOST_CLASSES: Final = 64


@dataclass(slots=True)
class _Kept:
    """Of one class: its requests, each with where it may be at all, and what nodes hold, by position.

    ``seen``: how many positions the statement had touched by then. ``total``: the sum over all nodes; None: not known.
    """

    ways: list[tuple[PodClass, Bools]]
    held: Int64s
    seen: int
    total: int | None = None


class KeptSlots:
    """Of the classes that were asked for last, on one statement."""

    __slots__ = ("_kept", "_statement")

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        #: In the order in which they were asked for.
        self._kept: dict[PodClass, _Kept] = {}

    def of(self, cls: PodClass) -> Int64s:
        """By position, the most pods of a class, by the best of its requests. Not to be changed, nor to be kept."""
        return self._now(cls).held

    def besides(self, cls: PodClass, off: Iterable[int]) -> int:
        """What all nodes but those at these positions hold, each ``AS_MANY`` at most."""
        kept = self._now(cls)
        if kept.total is None:
            kept.total = int(np.minimum(kept.held, AS_MANY).sum())
        return kept.total - sum(min(int(kept.held[position]), AS_MANY) for position in off)

    def _now(self, cls: PodClass) -> _Kept:
        kept = self._kept.pop(cls, None)
        if kept is None:
            if len(self._kept) >= _MOST_CLASSES:
                del self._kept[next(iter(self._kept))]
            ways = [(way, may_be(self._statement, way)) for way in cls.ways()]
            kept = _Kept(ways, self._counted(ways, _EVERYWHERE), len(self._statement.touched))
        else:
            self._renew(kept)
        self._kept[cls] = kept
        return kept

    def _renew(self, kept: _Kept) -> None:
        """Count the nodes again that were touched since."""
        touched = self._statement.touched
        if kept.seen == len(touched):
            return
        positions = set(touched[kept.seen :])
        if _MOST_PART * len(positions) > len(kept.held):
            kept.held[:] = self._counted(kept.ways, _EVERYWHERE)
        else:
            at = np.fromiter(positions, np.int64, len(positions))
            kept.held[at] = self._counted(kept.ways, at)
        kept.seen, kept.total = len(touched), None

    def _counted(self, ways: Iterable[tuple[PodClass, Bools]], at: Selection) -> Int64s:
        counted = [(of_way(self._statement, way, at), there[at]) for way, there in ways]
        for held, there in counted:
            held[~there] = 0
        return counted[0][0] if len(counted) == 1 else np.maximum.reduce([held for held, _ in counted])
