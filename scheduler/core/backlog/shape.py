"""Pods alone that wait for the same: of one namespace and one class. What holds for one of them holds for all."""

from __future__ import annotations

from collections.abc import Collection, KeysView
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from scheduler.core.model.priority_order import Rank, rank_alone
from scheduler.core.model.records import PodClass, PodRecord
from scheduler.core.model.verdict import Verdict

#: Ranks of pods that have left are not removed one by one while they are fewer than this.
_FEW: Final = 64


class ShapeKey(NamedTuple):
    """``uid``: of a pod that something sets apart from others of its class, "" for all others.

    ``is_fixed``: they can't be preempted, which counts in their queue.
    """

    namespace: str
    cls: PodClass
    uid: str = ""
    queue: str = ""
    is_fixed: bool = False


class Shape:
    """Pods (UIDs) with their ranks. ``verdict``: why they fit nowhere, None as long as that is not known.

    ``apart``: pods with a verdict of their own, until the shape has its next one.
    """

    __slots__ = ("_in_order", "_ranks", "apart", "key", "verdict")

    def __init__(self, key: ShapeKey) -> None:
        self.key = key
        self.verdict: Verdict | None = None
        self.apart: set[str] = set()
        self._ranks: dict[str, Rank] = {}
        #: A heap. Ranks of pods that have left stay in it until they come first, or are too many.
        self._in_order: list[Rank] = []

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def uids(self) -> KeysView[str]:
        """All pods, in no order."""
        return self._ranks.keys()

    def put(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        rank = rank_alone(pod)
        if self._ranks.get(pod.uid) == rank:
            return
        self._ranks[pod.uid] = rank
        heappush(self._in_order, rank)
        if len(self._in_order) > 2 * len(self._ranks) + _FEW:
            self._in_order = [*self._ranks.values()]
            heapify(self._in_order)

    def drop(self, uid: str) -> None:
        """A pod is of this shape no more."""
        self._ranks.pop(uid, None)

    def has(self, rank: Rank) -> bool:
        """Whether a pod of this very rank is of this shape."""
        return self._ranks.get(rank.uid) == rank

    def ranks(self) -> Collection[Rank]:
        """All pods' ranks, in no order."""
        return self._ranks.values()

    def in_order(self) -> list[Rank]:
        """Ranks as a heap of their own. Some are of pods that have left, or there twice."""
        return self._in_order.copy()


class Turns:
    """The pods of a shape in one decision: each has one turn, in order."""

    __slots__ = ("_in_order", "shape", "taken")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._in_order = shape.in_order()
        #: Pods that have had their turn.
        self.taken: set[str] = set()

    def first(self) -> Rank | None:
        """The rank of the pod that is decided on next, None if there is none."""
        while self._in_order:
            rank = self._in_order[0]
            if self.shape.has(rank) and rank.uid not in self.taken:
                return rank
            heappop(self._in_order)
        return None

    def take(self) -> Rank:
        """Give the next one its turn. Raises LookupError if there is none."""
        rank = self.first()
        if rank is None:
            raise LookupError("no pod of this shape has its turn to come")
        self.taken.add(rank.uid)
        return rank
