"""Nodes for members of a gang that share a claim: those that may take as many of them as start.

A claim that several pods use, and that is not bound or allocated yet, mostly comes to serve one node: that of the first
of them. So a node is out if it has no room for all, by upper bounds: class by class (pod_slots.py), and in sums of what
they ask. Classes count together if they share a claim, or each shares one with a third.

A node that is left may still be too small: devices of further claims and shares of several sizes are not counted. It
is taken out once members were placed there in vain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.core.decide.placer import Placer
from scheduler.core.decide.pod_slots import pod_slots
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Bools, Int64s
from scheduler.core.snapshot.node_mask import NodeMask

#: Classes of which the nodes' room is counted. Of others only the sums are, or nothing.
_CLASSES_COUNTED: Final = 64


@dataclass(slots=True)
class _Sharers:
    """Classes of members that share claims.

    ``for_most``: nodes that may take as many members as may start. ``for_least``: those that may take as many as have
    to, if all members without these claims start. ``used``: positions where members were placed.
    """

    classes: Sequence[PodClass]
    #: How many members there are of them.
    count: int
    for_most: Bools
    for_least: Bools
    used: set[int] = field(default_factory=set)
    nodes: Bools = field(init=False)

    def __post_init__(self) -> None:
        self._choose()

    def _choose(self) -> None:
        self.nodes = self.for_most if self.for_most.any() else self.for_least

    def take_out(self) -> bool:
        """Take out the nodes where members were placed, or those for most where none was; return whether any was."""
        has_any = bool(self.used) or bool(self.for_most.any())
        if self.used:
            self.for_most[[*self.used]] = self.for_least[[*self.used]] = False
        else:
            self.for_most[:] = False
        self.used.clear()
        self._choose()
        return has_any


class SharedClaims:
    """One gang's start. ``ready``: members that may be placed; ``needed``: how many of them have to start."""

    __slots__ = ("_count", "_of_class", "_placer", "_sharers", "counted")

    def __init__(self, ready: Sequence[PodRecord], needed: int, placer: Placer) -> None:
        self._placer, self._count = placer, len(ready)
        #: How many times the room of all nodes was counted.
        self.counted = 0
        users = Counter(pod.cls for pod in ready)
        self._sharers = [*self._joined(users, needed)]
        self._of_class = {cls: sharers for sharers in self._sharers for cls in sharers.classes}

    def _joined(self, users: Mapping[PodClass, int], needed: int) -> Iterator[_Sharers]:
        left = _CLASSES_COUNTED
        for classes in joined(users):
            together = {cls: users[cls] for cls in classes}
            count = sum(together.values())
            if not left:
                return
            if count == 1:  # it shares its claims with pods that are no members
                continue
            slots = {cls: self._slots(cls) for cls in classes[:left]}
            left -= len(slots)
            self.counted += len(slots) + 1
            most, least = min(count, needed), max(0, needed - (self._count - count))
            for_least = self._taking(least, together, slots, least_each=0)
            if for_least.any():  # else its claims may be those that serve several nodes
                yield _Sharers(classes, count, self._taking(most, together, slots, least_each=1), for_least)

    def _slots(self, cls: PodClass) -> Int64s:
        return pod_slots(self._placer, cls, None, with_idle=True)

    def _taking(
        self, wanted: int, together: Mapping[PodClass, int], slots: Mapping[PodClass, Int64s], *, least_each: int
    ) -> Bools:
        """The nodes that may take this many of some members, and of each class this many."""
        table, count = self._placer.statement.table, sum(together.values())
        found: Bools = np.ones(len(self._placer.statement.nodes), np.bool_)
        for cls, room in slots.items():
            found &= room >= max(least_each, wanted - (count - together[cls]))
        for row, asked in self._asked(together).items():
            free = table.free[row]
            if row == GPUS:
                free = free + table.extra[IDLE] + table.extra[LEAVING]
            found &= free >= _least(asked, count, wanted)
        return found

    def _asked(self, together: Mapping[PodClass, int]) -> dict[int, list[tuple[int, int]]]:
        """What members ask of each row of the table, and how many of them ask it: by the request that asks least."""
        found = defaultdict[int, list[tuple[int, int]]](list)
        for cls, count in together.items():
            first, *others = [dict(self._placer.statement.amounts(way.demand)) for way in self._placer.ways(cls)]
            for row, amount in first.items():
                least = min((other.get(row, 0) for other in others), default=amount)
                found[row].append((min(amount, least), count))
        return found

    # --- questions ---------------------------------------------------------------------------------------------------
    @property
    def has_any(self) -> bool:
        """Whether members share claims, and there are nodes that may take them together."""
        return bool(self._sharers)

    def nodes_for(self, cls: PodClass) -> NodeMask:
        """The nodes for members of a class."""
        sharers = self._of_class.get(cls)
        return None if sharers is None else sharers.nodes

    @property
    def nodes_for_all(self) -> NodeMask:
        """The nodes for all members, if all of them share claims with each other; else None."""
        is_whole = len(self._sharers) == 1 and self._sharers[0].count == self._count
        return self._sharers[0].nodes if is_whole else None

    # --- changes -----------------------------------------------------------------------------------------------------
    def note(self, cls: PodClass, node: str) -> None:
        """Note that a member of a class was placed on a node."""
        if (sharers := self._of_class.get(cls)) is not None:
            sharers.used.add(self._placer.statement.position_of[node])

    def take_out(self) -> bool:
        """Take out nodes that were tried in vain, and return whether that leaves others to try."""
        has_any = [sharers.take_out() for sharers in self._sharers]
        return any(has_any) and all(sharers.nodes.any() for sharers in self._sharers)


def joined(classes: Iterable[PodClass]) -> list[list[PodClass]]:
    """Classes that share claims of one node, with each other or with a third, in their order."""
    using = defaultdict[Hashable, list[PodClass]](list)
    for cls in classes:
        for claim in _shared(cls):
            using[claim].append(cls)
    found, seen = [], set[PodClass]()
    for first in [each[0] for each in using.values()]:
        if first in seen:
            continue
        seen.add(first)
        part = [first]
        for cls in part:  # grows
            for claim in _shared(cls):
                others = [each for each in dict.fromkeys(using[claim]) if each not in seen]
                using[claim] = []
                seen.update(others)
                part += others
        found.append(part)
    return found


def _shared(cls: PodClass) -> Iterator[Hashable]:
    """Claims that are not bound or allocated yet, that others use as well, and that may come to serve one node only."""
    yield from (("volume", need.claim) for need in cls.unbound if need.claim and not need.serves_many_nodes)
    yield from (("devices", need.claim) for need in cls.devices if need.claim)


def _least(asked: Iterable[tuple[int, int]], count: int, wanted: int) -> int:
    """The least that this many of the members ask together, where those that are not listed ask nothing."""
    listed = sorted(asked)
    left, total = wanted - (count - sum(number for _, number in listed)), 0
    for amount, number in listed:
        if left <= 0:
            break
        total += amount * min(number, left)
        left -= number
    return total
