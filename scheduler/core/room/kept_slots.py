"""How many pods of a class each node holds (slots.py), kept while a search tries one change after the other.

Only nodes that the statement has touched since are counted again: a group that is moved changes two or three of them.
"""

from __future__ import annotations

from collections.abc import Iterable
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


class KeptSlots:
    """Of all classes that are asked for, on one statement."""

    __slots__ = ("_held", "_seen", "_statement", "_sums", "_ways")

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        #: Requests of each class, with where it may be at all; what nodes hold; and how much was touched by then.
        self._ways: dict[PodClass, list[tuple[PodClass, Bools]]] = {}
        self._held: dict[PodClass, Int64s] = {}
        self._seen: dict[PodClass, int] = {}
        self._sums: dict[PodClass, int] = {}

    def of(self, cls: PodClass) -> Int64s:
        """By position, the most pods of a class, by the best of its requests. Not to be changed, nor to be kept."""
        touched, held = self._statement.touched, self._held.get(cls)
        if held is None:
            self._ways[cls] = [(way, may_be(self._statement, way)) for way in cls.ways()]
            held = self._held[cls] = self._counted(cls, _EVERYWHERE)
        elif (seen := self._seen[cls]) < len(touched):
            self._sums.pop(cls, None)
            positions = set(touched[seen:])
            if _MOST_PART * len(positions) > len(held):
                held[:] = self._counted(cls, _EVERYWHERE)
            else:
                at = np.fromiter(positions, np.int64, len(positions))
                held[at] = self._counted(cls, at)
        self._seen[cls] = len(touched)
        return held

    def besides(self, cls: PodClass, off: Iterable[int]) -> int:
        """What all nodes but those at these positions hold, each ``AS_MANY`` at most."""
        held = self.of(cls)
        known = self._sums.get(cls)
        if known is None:
            known = self._sums[cls] = int(np.minimum(held, AS_MANY).sum())
        return known - sum(min(int(held[position]), AS_MANY) for position in off)

    def _counted(self, cls: PodClass, at: Selection) -> Int64s:
        ways = [(of_way(self._statement, way, at), there[at]) for way, there in self._ways[cls]]
        for held, there in ways:
            held[~there] = 0
        return ways[0][0] if len(ways) == 1 else np.maximum.reduce([held for held, _ in ways])
