"""Signatures of pods alone: those of one namespace and class ask the same, so what holds for one holds for all."""

from __future__ import annotations

from collections.abc import Collection, Hashable, KeysView, Mapping, Set
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import NoVictims
from scheduler.core.model.priority_order import Rank, rank_alone
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.ledger import Capacity

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


class ShapeKey(NamedTuple):
    """``uid``: of a pod that something sets apart from others of its class, "" for all others.

    ``is_fixed``: they can't be preempted, which counts in their queue.
    """

    namespace: str
    cls: PodClass
    uid: str = ""
    queue: str = ""
    is_fixed: bool = False


class Shape(Ranked):
    """Pods (UIDs) with their ranks. ``verdict``: why they fit nowhere, None as long as that is not known.

    ``apart``: pods with a verdict of their own, until the shape has its next one.
    """

    __slots__ = ("apart", "key", "verdict")

    def __init__(self, key: ShapeKey) -> None:
        super().__init__()
        self.key = key
        self.verdict: Verdict | None = None
        self.apart: set[str] = set()

    def put(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        self.put_rank(rank_alone(pod))


#: What a need is known by: a shape, a line of gangs, or a gang.
NeedKey = Hashable
#: What answers depend on; equal stamps, equal answers, but for times.
Stamp = tuple[object, ...]


class Refused(msgspec.Struct, frozen=True):
    """A need that was refused at ``at_ns``. ``again_ns``: when time alone may change the answer; None: it does not.

    ``priority``: of the pod or gang that was refused; one that comes before it may take from others.
    """

    stamp: Stamp
    at_ns: int
    answer: NoVictims
    again_ns: int | None = None
    priority: int = 0


class Passed(msgspec.Struct, frozen=True):
    """A need that was looked at, at ``at_ns``, and lacked something else than room, or nothing."""

    stamp: Stamp
    at_ns: int


class PreemptionMemo(msgspec.Struct, frozen=True):
    """Needs for which victims were looked for, so that nothing is searched twice for the same answer.

    As of the last look, at ``looked_ns``. ``next_ns``: when there is something to look for again. ``passed``: needs
    that needed no room when they were looked at last. ``leaving``: pods (UIDs) that were to go then, and since when
    that is known. ``revised``: how often nominations were, by id. ``too_large``: shapes that were refused and that no
    empty node holds, by ``capacity``: what nodes had in all. The stamp of such an answer is its version.
    """

    looked_ns: int | None = None
    stamp: Stamp = ()
    refused: Mapping[NeedKey, Refused] = {}
    passed: Mapping[NeedKey, Passed] = {}
    leaving: Mapping[str, int] = {}
    revised: Mapping[str, int] = {}
    next_ns: int | None = None
    capacity: Capacity | None = None
    too_large: frozenset[ShapeKey] = frozenset()

    def without_answers_to(self, keys: Collection[NeedKey]) -> PreemptionMemo:
        """The same where these needs were refused, or passed over, on another ground: they ask something else now."""
        if not keys:
            return self
        refused, passed = {**self.refused}, {**self.passed}
        refused.update({key: msgspec.structs.replace(refused[key], stamp=()) for key in keys if key in refused})
        passed.update({key: msgspec.structs.replace(passed[key], stamp=()) for key in keys if key in passed})
        return msgspec.structs.replace(self, stamp=(), refused=refused, passed=passed)


NEVER_LOOKED = PreemptionMemo()
