"""A topology over the nodes of a cluster, as slices of one permutation (placement.md, section 5).

Nodes are sorted by their path: the values of the levels' labels from coarse to fine, then by position. So every domain
of every level is a slice of that order. A node counts for a level if it has the label of that level and of all above
it; one without any is in the root only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.table import Bools, Int64s

#: The place of a level in ``Tree.levels`` above which there is only the whole cluster.
ROOT: Final = 0
_ABSENT: Final = -1


class Domain(NamedTuple):
    """One domain: nodes ``[start, end)`` in the order of the tree. ``level`` 0: all nodes."""

    level: int
    start: int
    end: int


class Level(NamedTuple):
    """The domains of a level in the order of their paths: where each starts and ends."""

    starts: Int64s
    ends: Int64s


class Tree(msgspec.Struct, frozen=True, gc=False):
    """``order``: positions of nodes, sorted by path. ``levels``: the root, then one for each label, coarse to fine.

    ``values``: of each level but the root the label's value of each node in order, "" where it does not count there.
    """

    order: Int64s
    levels: tuple[Level, ...]
    values: tuple[Sequence[str], ...]

    @property
    def depth(self) -> int:
        """How many levels there are below the root."""
        return len(self.levels) - 1

    def domains(self, level: int) -> list[Domain]:
        """All domains of a level, in the order of their paths."""
        starts, ends = self.levels[level]
        return [Domain(level, start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def around(self, domain: Domain, level: int) -> Domain:
        """The domain of a coarser level that a domain is part of."""
        starts, ends = self.levels[level]
        at = int(np.searchsorted(starts, domain.start, side="right")) - 1
        return Domain(level, int(starts[at]), int(ends[at]))

    def domain_of(self, place: int, level: int) -> Domain | None:
        """The domain of a level that the node at this place of the order is in; None if it counts for none."""
        starts, ends = self.levels[level]
        at = int(np.searchsorted(starts, place, side="right")) - 1
        return Domain(level, int(starts[at]), int(ends[at])) if at >= 0 and place < ends[at] else None

    def name(self, domain: Domain) -> str:
        """The values of a domain's labels, coarse to fine, joined by dots as KAI does; "" is the whole cluster."""
        return ".".join(self.values[level][domain.start] for level in range(domain.level))

    def mask(self, *domains: Domain) -> Bools:
        """The nodes of these domains, one bool a position."""
        found = np.zeros(len(self.order), np.bool_)
        for domain in domains:
            found[self.order[domain.start : domain.end]] = True
        return found

    def places(self) -> Int64s:
        """Of each position its place in the order."""
        found = np.empty(len(self.order), np.int64)
        found[self.order] = np.arange(len(self.order))
        return found


def tree_of(nodes: Sequence[NodeRecord], labels: Sequence[str]) -> Tree:
    """Sort nodes by the values of these labels, coarse to fine. O(nodes x labels)."""
    count, numbers, values = len(nodes), list[Int64s](), list[list[str]]()
    counts = np.ones(count, np.bool_)
    for label in labels:
        found = [node.labels.get(label) for node in nodes]
        number_of = {
            value: number for number, value in enumerate(sorted({value for value in found if value is not None}))
        }
        number = np.fromiter((_ABSENT if value is None else number_of[value] for value in found), np.int64, count)
        counts = counts & (number != _ABSENT)
        numbers.append(np.where(counts, number, _ABSENT))
        values.append([value or "" for value in found])
    order = np.lexsort(numbers[::-1]) if numbers else np.arange(count)
    in_order = order.tolist()
    levels = [Level(np.zeros(1, np.int64), np.full(1, count, np.int64))]
    is_other = np.zeros(count, np.bool_)
    is_other[:1] = True
    for number in numbers:
        sorted_by_path = number[order]
        is_other[1:] |= sorted_by_path[1:] != sorted_by_path[:-1]
        starts = np.flatnonzero(is_other)
        ends = np.append(starts[1:], count)
        there = sorted_by_path[starts] != _ABSENT
        levels.append(Level(starts[there], ends[there]))
    return Tree(order, tuple(levels), tuple([found[position] for position in in_order] for found in values))
