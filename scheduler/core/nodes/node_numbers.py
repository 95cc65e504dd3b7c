"""Numbers that follow from a node's record alone, by row: made once for each ask, and again for a node that changes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from scheduler.core.filters.taints import PREFER_NO_SCHEDULE
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.table import Int64s

#: The most asks that are kept: those that were asked last.
_MOST_KEPT: Final = 256
#: After this many changes all numbers are made again.
_MOST_CHANGED: Final = 10_000


class Numbering(Protocol):
    """A pure function of a node and of what is asked. Those of one ``kind`` are equal."""

    @property
    def kind(self) -> str:
        """Which function it is."""
        ...

    def reads(self, node: NodeRecord, asked: Any) -> Hashable:
        """All of a node that the number depends on, cheaper to find than the number."""
        ...

    def number(self, node: NodeRecord, asked: Any) -> int:
        """The number of a node."""
        ...

    def effort(self, asked: Any) -> int:
        """What it takes to find what is read of a node, in comparisons or so."""
        ...


@dataclass(slots=True)
class _Kept:
    """``seen``: the number of the next change to be looked at."""

    numbers: Int64s
    seen: int


class NodeNumbers:
    """Numbers by kind and ask, and which rows have a taint PreferNoSchedule, so that it costs nothing where none has.

    A node that changes is a note; who asks next pays for it. ``effort_spent``: what all has cost so far, in operations
    of about a microsecond.
    """

    __slots__ = ("_changed", "_first", "_kept", "effort_spent", "soft_tainted")

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Hashable], _Kept] = {}
        #: Rows whose nodes have changed, from the change of this number on.
        self._changed: list[int] = []
        self._first = 0
        self.soft_tainted: set[int] = set()
        self.effort_spent = 0

    def copy(self) -> NodeNumbers:
        """The same rows, to be changed by themselves; numbers are made again when they are asked for."""
        made = NodeNumbers()
        made.soft_tainted = set(self.soft_tainted)
        return made

    def put(self, row: int, node: NodeRecord | None) -> None:
        """A row has this node now."""
        self.soft_tainted.discard(row)
        if node is not None and any(taint.effect == PREFER_NO_SCHEDULE for taint in node.taints):
            self.soft_tainted.add(row)
        if self._kept:
            self._changed.append(row)
        if len(self._changed) > _MOST_CHANGED:
            self._first += len(self._changed)
            self._changed.clear()
            self._kept.clear()

    def of(self, numbering: Numbering, asked: Hashable, nodes: Sequence[NodeRecord | None]) -> Int64s:
        """The number of each node, 0 in rows without one. Not to be written."""
        known = self._kept.pop((numbering.kind, asked), None)
        if known is None or len(known.numbers) != len(nodes):
            self.effort_spent += len(nodes) * numbering.effort(asked)
            known = _Kept(_numbers(numbering, asked, nodes), self._first + len(self._changed))
        for row in self._changed[known.seen - self._first :]:
            node = nodes[row]
            self.effort_spent += numbering.effort(asked)
            known.numbers[row] = 0 if node is None else numbering.number(node, asked)
        known.seen = self._first + len(self._changed)
        if len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[numbering.kind, asked] = known
        return known.numbers


def _numbers(numbering: Numbering, asked: Hashable, nodes: Sequence[NodeRecord | None]) -> Int64s:
    alike: dict[Hashable, int] = {}
    found = np.zeros(len(nodes), np.int64)
    for row, node in enumerate(nodes):
        if node is not None:
            read = numbering.reads(node, asked)
            number = alike.get(read)
            if number is None:
                number = alike[read] = numbering.number(node, asked)
            found[row] = number
    return found
