"""Shapes and gangs that their queue holds back: they sleep until it may take what they would use.

Those that would use the same in one queue stand in one line, by rank. When the queue may take some of them, the first
few wake, or as many as it may take: of ten thousand that wait at a limit, a GPU that comes free wakes some thirty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Protocol

from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.model.priority_order import Rank
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import Tree

Item = ShapeKey | Key

#: At least so many wake at once: the first may fit on no node, and the next is then decided on with it.
_AT_LEAST: Final = 32
#: Places of what has left are not removed from a line while they are fewer than this.
_FEW: Final = 64


class Room(Protocol):
    """What queues have left."""

    def room_for(self, use: Use) -> int:
        """How many times a queue may take a use."""
        ...


class _Place(NamedTuple):
    """Where an item stands. No two have the same number, so that places are compared, and items never are."""

    rank: Rank
    number: int
    item: Item


@dataclass(slots=True)
class _Line:
    """All that would use the same. ``places`` is a heap: those of what has left stay in it until they come first, or
    are too many.
    """

    places: list[_Place] = field(default_factory=list)
    standing: int = 0


@dataclass(slots=True)
class QuotaSleepers:
    """Who sleeps for which use."""

    _is_more: bool = False
    _use_of: dict[Item, Use] = field(default_factory=dict)
    _place_of: dict[Item, _Place] = field(default_factory=dict)
    _numbers: int = 0
    #: Those in which somebody stands.
    _lines: dict[Use, _Line] = field(default_factory=dict)
    #: The tree of the last decision, by which they were held back.
    _tree: Tree | None = None

    def __contains__(self, item: Item) -> bool:
        return item in self._use_of

    def __len__(self) -> int:
        return len(self._use_of)

    @property
    def kept(self) -> int:
        """How many places are kept, those of what has left included."""
        return sum(len(line.places) for line in self._lines.values())

    @property
    def have_more(self) -> bool:
        """Whether a queue may take more than were woken last."""
        return self._is_more and bool(self._use_of)

    def put(self, item: Item, rank: Rank, use: Use) -> None:
        """Have it sleep until its queue may take this use."""
        known = self._place_of.get(item)
        if known is not None and (known.rank, self._use_of[item]) == (rank, use):
            return
        self.drop(item)
        self._numbers += 1
        place = self._place_of[item] = _Place(rank, self._numbers, item)
        self._use_of[item] = use
        line = self._lines.setdefault(use, _Line())
        line.standing += 1
        heappush(line.places, place)
        if len(line.places) > 2 * line.standing + _FEW:
            line.places = list(filter(self._stands, line.places))
            heapify(line.places)

    def raise_rank(self, item: Item, rank: Rank) -> None:
        """A pod has joined a shape: it may stand further ahead."""
        known = self._place_of.get(item)
        if known is not None and rank < known.rank:
            self.put(item, rank, self._use_of[item])

    def drop(self, item: Item) -> None:
        """It sleeps no more, or not for its queue."""
        use = self._use_of.pop(item, None)
        if use is None:
            return
        del self._place_of[item]
        line = self._lines[use]
        line.standing -= 1
        if not line.standing:
            del self._lines[use]

    def due(self, tree: Tree, accounts: Callable[[], Room]) -> list[Item]:
        """Take out those that queues may take now; before each decision.

        All of them after a queue has changed: what each was told may be wrong.
        """
        if tree is not self._tree:
            self._tree, self._is_more = tree, False
            found = list(self._use_of)
            for item in found:
                self.drop(item)
            return found
        return list(self._first(accounts().room_for)) if self._lines else []

    def _first(self, may_take: Callable[[Use], int]) -> Iterator[Item]:
        self._is_more = False
        for use in list(self._lines):
            times = may_take(use)
            for _ in range(max(times, _AT_LEAST) if times else 0):
                if use not in self._lines:
                    break
                yield self._pop(self._lines[use])
            self._is_more |= times > 0 and use in self._lines

    def _pop(self, line: _Line) -> Item:
        """Take out the first that stands in a line."""
        while not self._stands(place := heappop(line.places)):
            pass
        self.drop(place.item)
        return place.item

    def _stands(self, place: _Place) -> bool:
        return self._place_of.get(place.item) is place
