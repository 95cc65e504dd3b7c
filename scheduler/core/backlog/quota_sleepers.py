"""Shapes and gangs that their queue holds back: they sleep until it may take what they would use.

Those that would use the same in one queue stand in one line, by rank. When the queue may take some of them, the first
few wake, or as many as it may take: of ten thousand that wait at a limit, a GPU that comes free wakes some thirty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Protocol

from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.model.priority_order import Rank
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import Tree

Item = ShapeKey | Key

#: At least so many wake at once: the first may fit on no node, and the next is then decided on with it.
_AT_LEAST: Final = 32


class Room(Protocol):
    """What queues have left."""

    def room_for(self, use: Use) -> int:
        """How many times a queue may take a use."""
        ...


@dataclass(slots=True)
class QuotaSleepers:
    """Who sleeps for which use."""

    _is_more: bool = False
    _use_of: dict[Item, Use] = field(default_factory=dict)
    _rank_of: dict[Item, Rank] = field(default_factory=dict)
    #: By use, as heaps. Those that have left stay in it until they come first.
    _lines: dict[Use, list[tuple[Rank, Item]]] = field(default_factory=dict)
    #: The tree of the last decision, by which they were held back.
    _tree: Tree | None = None

    def __contains__(self, item: Item) -> bool:
        return item in self._use_of

    def __len__(self) -> int:
        return len(self._use_of)

    @property
    def have_more(self) -> bool:
        """Whether a queue may take more than were woken last."""
        return self._is_more and bool(self._use_of)

    def put(self, item: Item, rank: Rank, use: Use) -> None:
        """Have it sleep until its queue may take this use."""
        self._use_of[item], self._rank_of[item] = use, rank
        heappush(self._lines.setdefault(use, []), (rank, item))

    def raise_rank(self, item: Item, rank: Rank) -> None:
        """A pod has joined a shape: it may stand further ahead."""
        known = self._rank_of.get(item)
        if known is not None and rank < known:
            self.put(item, rank, self._use_of[item])

    def drop(self, item: Item) -> None:
        """It sleeps no more, or not for its queue."""
        self._use_of.pop(item, None)
        self._rank_of.pop(item, None)

    def due(self, tree: Tree, accounts: Callable[[], Room]) -> list[Item]:
        """Take out those that queues may take now; before each decision.

        All of them after a queue has changed: what each was told may be wrong.
        """
        if tree is not self._tree:
            self._tree, self._is_more = tree, False
            found = list(self._use_of)
            self._lines.clear()
        else:
            found = list(self._first(accounts().room_for)) if self._lines else []
        for item in found:
            self.drop(item)
        return found

    def _first(self, may_take: Callable[[Use], int]) -> Iterator[Item]:
        self._is_more = False
        for use in list(self._lines):
            times = may_take(use)
            for _ in range(max(times, _AT_LEAST) if times else 0):
                item = self._pop(use)
                if item is not None:
                    yield item
            self._is_more |= times > 0 and self._has_more(use)
            if not self._lines[use]:
                del self._lines[use]

    def _has_more(self, use: Use) -> bool:
        line = self._lines[use]
        while line and not self._stands(use, line[0]):
            heappop(line)
        return bool(line)

    def _pop(self, use: Use) -> Item | None:
        if not self._has_more(use):
            return None
        _, item = heappop(self._lines[use])
        return item

    def _stands(self, use: Use, place: tuple[Rank, Item]) -> bool:
        rank, item = place
        return self._use_of.get(item) == use and self._rank_of.get(item) == rank
