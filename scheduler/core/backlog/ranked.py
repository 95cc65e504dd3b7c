"""What waits for the same, by rank, and whose turn it is."""

from __future__ import annotations

from collections.abc import Collection, KeysView, Set
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from scheduler.core.model.priority_order import Rank

#: Ranks of what has left are not removed one by one while they are fewer than this.
_FEW: Final = 64


class Ranked:
    """Ranks by UID: of pods, or of PodGroups."""

    __slots__ = ("_in_order", "_ranks")

    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}
        #: A heap. Ranks of what has left stay in it until they come first, or are too many.
        self._in_order: list[Rank] = []

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def uids(self) -> KeysView[str]:
        """All UIDs, in no order."""
        return self._ranks.keys()

    def put_rank(self, rank: Rank) -> None:
        """Take one, or its new rank."""
        if self._ranks.get(rank.uid) == rank:
            return
        self._ranks[rank.uid] = rank
        heappush(self._in_order, rank)
        if len(self._in_order) > 2 * len(self._ranks) + _FEW:
            self._in_order = [*self._ranks.values()]
            heapify(self._in_order)

    def copy_ranks(self, other: Ranked) -> None:
        """Take all ranks of another one."""
        self._ranks, self._in_order = other._ranks.copy(), other._in_order.copy()

    def drop(self, uid: str) -> None:
        """It is here no more."""
        self._ranks.pop(uid, None)

    def has(self, rank: Rank) -> bool:
        """Whether there is one of this very rank."""
        return self._ranks.get(rank.uid) == rank

    def ranks(self) -> Collection[Rank]:
        """All ranks, in no order."""
        return self._ranks.values()

    def in_order(self) -> list[Rank]:
        """Ranks as a heap of their own. Some are of what has left, or there twice."""
        return self._in_order.copy()


R = TypeVar("R", bound=Ranked)


class Turns(Generic[R]):
    """All that wait for the same, in one decision: each has one turn, in order."""

    __slots__ = ("_in_order", "of", "taken")

    def __init__(self, of: R, settled: Set[str] = frozenset()) -> None:
        """``settled``: UIDs of whom some have had their turn already."""
        self.of = of
        self._in_order = of.in_order()
        #: UIDs of those that have had their turn.
        self.taken: set[str] = settled & of.uids if settled else set()
        if len(self.taken) > _FEW:
            self._in_order = [rank for rank in self._in_order if rank.uid not in self.taken]
            heapify(self._in_order)

    def first(self) -> Rank | None:
        """The rank of the one that is decided on next, None if there is none."""
        while self._in_order:
            rank = self._in_order[0]
            if self.of.has(rank) and rank.uid not in self.taken:
                return rank
            heappop(self._in_order)
        return None

    def take(self) -> Rank:
        """Give the next one its turn. Raises LookupError if there is none."""
        rank = self.first()
        if rank is None:
            raise LookupError("nobody is left to have a turn")
        self.taken.add(rank.uid)
        return rank

    def end(self) -> None:
        """Nobody has a turn any more."""
        self._in_order.clear()
