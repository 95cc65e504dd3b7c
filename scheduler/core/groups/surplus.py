"""Members of a gang beyond its minimum, one after another: the subgroup that has the least of its minimum comes first.

So kai-contract 14.11 has it: the lowest ratio of active members to the minimum, compared again for each one that is
placed. Of a subgroup that has others below it the ratio is that of its children that are whole to those that it needs,
and among its children the same is asked again. A subgroup without a minimum comes last.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from scheduler.core.model.minimum_tree import MinimumTree
from scheduler.core.model.records import PodGroupRecord, PodRecord

#: Whether there is no minimum, the ratio, the place of the first pod in the order of members, the node.
_Turn = tuple[bool, int, int, int]
#: Ratios in parts of 2^64, rounded down: two of them with minimums below 2^31 are as equal or unequal as exact ones.
_PARTS_BITS: Final = 64
#: Below this level leaves are compared with each other directly, past the levels in between, so that one member costs
#: this many looks at most.
_LEVELS: Final = 16


class Surplus:
    """``active``: members by subgroup that are bound or on their way. ``waiting``: the others, in their order.

    All pods of no leaf of the tree are one more leaf at the top, whose number is that of nodes: what the minimum in
    all asks beyond those of subgroups is theirs.
    """

    def __init__(self, group: PodGroupRecord, active: Mapping[str, int], waiting: Iterable[PodRecord]) -> None:
        self._tree, self._rest = group.tree, len(group.tree.names)
        self._numbers = group.tree.numbers()
        self._minimums = [*map(max, group.tree.pods, group.tree.parts), max(0, group.minimum - group.tree.fewest)]
        self._active = _whole(group.tree, active, self._numbers)
        known = Counter[int]()
        for name, count in active.items():
            known[self._known(name)] += count
        for node in (*group.tree.leaves, self._rest):
            self._active[node] = known[node]
        self._waiting: dict[int, deque[tuple[int, PodRecord]]] = {}
        for place, pod in enumerate(waiting):
            self._waiting.setdefault(self._known(pod.subgroup), deque()).append((place, pod))
        self._parents, self._turns = _levels(group.tree, self._rest), dict[int, list[_Turn]]()
        self._fill()
        #: The leaf of the member that was taken last; 0 if there is none.
        self._last = 0

    def _fill(self) -> None:
        """Put those into their parents' turns that have members left, or children that have."""
        for node in range(self._rest, 0, -1):
            if node in self._turns:
                heapify(self._turns[node])
            if (first := self._first(node)) is not None:
                self._turns.setdefault(self._parents[node], []).append(self._turn(node, first))
        heapify(self._turns.setdefault(0, []))

    def _first(self, node: int) -> int | None:
        """The place of the member that is its next one, in the order of members."""
        if node in self._waiting:
            return self._waiting[node][0][0] if self._waiting[node] else None
        return self._turns[node][0][2] if self._turns.get(node) else None

    def take(self) -> PodRecord | None:
        """The next one; None if there is none left."""
        self._put_back()
        node = 0
        while self._turns.get(node):
            node = heappop(self._turns[node])[-1]
        self._last = node
        if not node:
            return None
        return self._waiting[node].popleft()[1]

    def placed(self) -> None:
        """The one that was taken last is active now."""
        node = self._last
        if not node:
            return
        self._active[node] += 1
        # What becomes whole by that counts above it.
        while node not in {0, self._rest} and self._active[node] == self._minimums[node]:
            node = self._tree.parents[node]
            self._active[node] += 1

    def _put_back(self) -> None:
        """Put the leaf of the last one, and what is above it, into their turns again if they have members left."""
        node = self._last
        while node:
            if (first := self._first(node)) is not None:
                heappush(self._turns[self._parents[node]], self._turn(node, first))
            node = self._parents[node]

    def _known(self, subgroup: str) -> int:
        return self._numbers.get(subgroup, self._rest)

    def _turn(self, node: int, first: int) -> _Turn:
        minimum = self._minimums[node]
        return (not minimum, (self._active[node] << _PARTS_BITS) // minimum if minimum else 0, first, node)


def _whole(tree: MinimumTree, active: Mapping[str, int], numbers: Mapping[str, int]) -> list[int]:
    """How many children of each node are whole; one more for the rest."""
    counts = Counter({name: count for name, count in active.items() if name in numbers})
    costs = tree.costs(tree.lacking(counts))
    return [*(sum(costs[child] == 0 for child in children) for children in tree.children), 0]


def _levels(tree: MinimumTree, rest: int) -> list[int]:
    """The parent of each node, as far as levels are told apart; the rest stands at the top."""
    depth, found = [0] * (rest + 1), [0] * (rest + 1)
    for node in range(1, rest):
        above = tree.parents[node]
        found[node] = above if depth[above] < _LEVELS else found[above]
        depth[node] = min(depth[above] + 1, _LEVELS)
    return found
