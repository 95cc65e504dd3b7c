"""Which domain takes a number of equal pods: the tightest of the deepest level that has one, and how it is split.

*Tightest*: of the domains with room for all of them, the one with the least room, which leaves the large ones whole; of
equals the first by path. Below the chosen domain the pods are divided level by level: the fewest children, largest
first, and for the rest the tightest one that takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from scheduler.core.nodes.table import Int64s
from scheduler.core.topology.tree import Domain, Tree


class Part(NamedTuple):
    """A domain, and a number of pods: those that go there, or that it takes."""

    domain: Domain
    pods: int


class Slots:
    """How many pods the nodes of a tree take: ``per_node``, one number a position."""

    __slots__ = ("_before", "tree")

    def __init__(self, tree: Tree, per_node: Int64s) -> None:
        self.tree = tree
        #: How many all nodes take that come earlier in the order.
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(per_node[tree.order])])

    def of_level(self, level: int) -> Int64s:
        """How many each domain of a level takes."""
        starts, ends = self.tree.levels[level]
        found: Int64s = self._before[ends] - self._before[starts]
        return found

    def of(self, domain: Domain) -> int:
        """How many a domain takes."""
        return int(self._before[domain.end] - self._before[domain.start])

    def fitting(self, level: int, count: int) -> Iterator[Domain]:
        """Domains of a level that take this many pods, the tightest first, then by path."""
        starts, ends = self.tree.levels[level]
        room = self.of_level(level)
        fit = np.flatnonzero(room >= count)
        for at in fit[np.argsort(room[fit], kind="stable")].tolist():
            yield Domain(level, int(starts[at]), int(ends[at]))

    def best(self, level: int, most: int) -> list[Part]:
        """The domains of a level with the most room, and how much that is; of equals the first by path."""
        starts, ends = self.tree.levels[level]
        room = self.of_level(level)
        order = np.argsort(-room, kind="stable")[:most].tolist()
        return [Part(Domain(level, int(starts[at]), int(ends[at])), int(room[at])) for at in order]

    def split(self, domain: Domain, count: int) -> list[Part]:
        """Divide pods that a domain takes over the smallest domains below it, and its nodes that are in none."""
        found, left = list[Part](), [Part(domain, count)]
        while left:
            part = left.pop()
            children = self._divided(part)
            if children:
                left += reversed(children)
            else:
                found.append(part)
        return found

    def _divided(self, part: Part) -> list[Part]:
        """The same over the children of a domain; [] where it has none, or they do not take all."""
        level, start, end = part.domain
        if level == self.tree.depth or end - start == 1:
            return []
        starts, ends = self.tree.levels[level + 1]
        first, last = np.searchsorted(starts, [start, end])
        starts, ends = starts[first:last], ends[first:last]
        room = self._before[ends] - self._before[starts]
        if int(room.sum()) < part.pods:
            return []
        found, left = list[Part](), part.pods
        for place, at in enumerate(order := np.argsort(-room, kind="stable")):
            rest, at_least = order[place:], int(room[at])
            if at_least >= left:
                tight = rest[room[rest] >= left]
                chosen = tight[room[tight] == room[tight].min()].min()
                found.append(Part(Domain(level + 1, int(starts[chosen]), int(ends[chosen])), left))
                break
            found.append(Part(Domain(level + 1, int(starts[at]), int(ends[at])), at_least))
            left -= at_least
        return found
