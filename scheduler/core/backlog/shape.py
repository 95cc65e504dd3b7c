"""Pods alone that wait for the same: of one namespace and one class. What holds for one of them holds for all."""

from __future__ import annotations

from collections.abc import KeysView
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from scheduler.core.model.priority_order import Rank, rank_alone
from scheduler.core.model.records import PodClass, PodRecord
from scheduler.core.model.verdict import Verdict

#: Ranks of pods that have left are not removed one by one while they are fewer than this.
_FEW: Final = 64


class ShapeKey(NamedTuple):
    """``uid``: of a pod that something sets apart from others of its class, "" for all others."""

    namespace: str
    cls: PodClass
    uid: str = ""


class Shape:
    """Pods (UIDs) with their ranks. ``verdict``: why they fit nowhere, None as long as that is not known.

    ``apart``: pods with a verdict of their own, until the shape has its next one.
    """

    __slots__ = ("_in_order", "_ranks", "_taken", "apart", "key", "verdict")

    def __init__(self, key: ShapeKey) -> None:
        self.key = key
        self.verdict: Verdict | None = None
        self.apart: set[str] = set()
        self._ranks: dict[str, Rank] = {}
        #: A heap. Ranks of pods that have left stay in it until they come first, or are too many.
        self._in_order: list[Rank] = []
        #: Ranks of pods that have had their turn in the decision under way, by pod: they have no second one.
        self._taken: dict[str, Rank] = {}

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
        if pod.uid not in self._taken:
            heappush(self._in_order, rank)
        if len(self._in_order) > 2 * len(self._ranks) + _FEW:
            self._in_order = [rank for uid, rank in self._ranks.items() if uid not in self._taken]
            heapify(self._in_order)

    def drop(self, uid: str) -> None:
        """A pod is of this shape no more."""
        self._ranks.pop(uid, None)

    def first(self) -> Rank | None:
        """The rank of the pod that is decided on first, None if there is none."""
        while self._in_order:
            rank = self._in_order[0]
            if self._ranks.get(rank.uid) == rank:
                return rank
            heappop(self._in_order)
        return None

    def take(self) -> Rank:
        """Take the first one out of the order, until all are put back. Raises LookupError if there is none."""
        rank = self.first()
        if rank is None:
            raise LookupError("no pod of this shape has its turn to come")
        while self._in_order and self._in_order[0] == rank:
            heappop(self._in_order)  # more than once of a pod that has left and come back
        self._taken[rank.uid] = rank
        return rank

    def put_back(self) -> None:
        """Those that were taken are in order again, as far as they are still of this shape."""
        for uid in self._taken:
            if (rank := self._ranks.get(uid)) is not None:
                heappush(self._in_order, rank)
        self._taken.clear()

    @property
    def taken(self) -> KeysView[str]:
        """Pods that have had their turn."""
        return self._taken.keys()
