"""The minimums of a gang as a tree: how many pods each leaf needs, and how many of its children each level needs.

A level that says nothing needs all its children (kai-contract 2.2). Children that need no pods are satisfied from the
start, so they stand in for others only where too few others are there: a level that needs two of its children and has
two with a minimum starts with those two, and not with nobody.

All of it is linear in the subgroups but for one sort, and without recursion: a PodGroup may name 10,000 subgroups, one
below the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import nlargest, nsmallest
from typing import Final, NamedTuple

import msgspec

from scheduler.core.model.verdict import Code

#: More pods than there can be: what lacks this number is never satisfied.
NEVER: Final = 1 << 62


class Part(NamedTuple):
    """A subgroup as a PodGroup writes it; ``parent`` "": it is at the top. None: not said."""

    name: str
    parent: str
    min_pods: int | None
    min_parts: int | None


class Contradiction(NamedTuple):
    """Why a tree means nothing: a code, and the subgroup; "" is the PodGroup itself."""

    code: Code
    subgroup: str


class Choice(NamedTuple):
    """``needed`` of these nodes have to be satisfied, the nearest to that first."""

    needed: int
    nodes: tuple[int, ...]


class MinimumTree(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Nodes by number: the PodGroup itself is 0, parents come before their children, siblings as they are declared.

    ``pods``: of a leaf, its minimum. ``parts``: of the others, how many of ``children`` have to be satisfied;
    ``children`` are those that need pods. ``least``: the fewest pods that satisfy each node.
    """

    names: tuple[str, ...] = ("",)
    parents: tuple[int, ...] = (0,)
    pods: tuple[int, ...] = (0,)
    parts: tuple[int, ...] = (0,)
    children: tuple[tuple[int, ...], ...] = ((),)
    leaves: tuple[int, ...] = ()
    least: tuple[int, ...] = (0,)

    @property
    def fewest(self) -> int:
        """The fewest pods that satisfy it; of one that can't be satisfied, all that its leaves need."""
        return self.least[0] if self.least[0] < NEVER else sum(self.pods)

    def numbers(self) -> dict[str, int]:
        """The leaves by name."""
        return {self.names[leaf]: leaf for leaf in self.leaves}

    def least_of(self, name: str) -> int:
        """The minimum of a leaf; 0 for a name that is none."""
        return _least_of_leaves(self).get(name, 0) if self.leaves else 0

    def lacking(self, counts: Counter[str]) -> list[int]:
        """How many pods each leaf lacks, if it has these."""
        lacks = [0] * len(self.names)
        for leaf in self.leaves:
            lacks[leaf] = max(0, self.pods[leaf] - counts[self.names[leaf]])
        return lacks

    def costs(self, lacks: Sequence[int]) -> list[int]:
        """The fewest pods that satisfy each node, if its leaves lack these."""
        return _costs(lacks, self.parts, self.children, len(self.names))

    def is_satisfied(self, counts: Counter[str]) -> bool:
        """Whether these pods by subgroup satisfy it."""
        return self.costs(self.lacking(counts))[0] == 0

    def fixed(self, costs: Sequence[int], node: int) -> tuple[list[int], list[Choice]]:
        """Leaves that have to start so that a node is satisfied, and what is left to choose between."""
        leaves, choices, open_nodes = list[int](), list[Choice](), [node]
        while open_nodes:
            at = open_nodes.pop()
            if not self.children[at]:
                leaves += [at] if costs[at] else []
                continue
            nodes, choice = self.choice(costs, at)
            open_nodes += reversed(nodes)
            choices += [choice] if choice is not None else []
        return leaves, choices

    def choice(self, costs: Sequence[int], node: int) -> tuple[tuple[int, ...], Choice | None]:
        """Children that all have to start so that a node is satisfied; or a choice between more than it needs."""
        done = sum(costs[child] == 0 for child in self.children[node])
        able = sorted((costs[child], child) for child in self.children[node] if 0 < costs[child] < NEVER)
        nodes = tuple(child for _, child in able)
        if self.parts[node] - done == len(nodes):
            return nodes, None
        return (), Choice(self.parts[node] - done, nodes) if self.parts[node] > done else None

    def chosen(self, costs: Sequence[int]) -> list[int]:
        """Leaves that satisfy it with the fewest pods: those nearest to their minimum, then as they are declared."""
        found, open_nodes = list[int](), [0]
        while open_nodes:
            node = open_nodes.pop()
            if not self.children[node]:
                found.append(node)
                continue
            best = nsmallest(self.parts[node], ((costs[child], child) for child in self.children[node]))
            open_nodes.extend(child for _, child in reversed(best))
        return [node for node in found if node]

    def needed_at_most(self, costs: Sequence[int]) -> int:
        """How many pods of those that satisfy it may be needed for that: those beyond are surplus."""
        needed = list(self.pods)
        for node in reversed(range(len(needed))):
            if self.children[node]:
                able = (needed[child] for child in self.children[node] if costs[child] == 0)
                needed[node] = sum(nlargest(self.parts[node], able))
        return needed[0]


@lru_cache(maxsize=256)
def _least_of_leaves(tree: MinimumTree) -> dict[str, int]:
    return {name: tree.pods[leaf] for name, leaf in tree.numbers().items()}


def minimum_tree(parts: Sequence[Part], min_parts: int | None) -> MinimumTree | Contradiction:
    """Make the tree of a PodGroup; ``min_parts``: how many of its children it needs, None: all."""
    broken = _broken_part(parts)
    if broken is not None:
        return broken
    below: dict[str, list[Part]] = {}
    for part in parts:
        below.setdefault(part.parent, []).append(part)
    for part in parts:
        if part.min_parts is not None and part.name not in below:
            return Contradiction(Code.GROUP_NO_CHILDREN, part.name)
    ordered, numbers = [Part("", "", None, min_parts)], {"": 0}
    for part in ordered:
        for child in below.get(part.name, ()):
            numbers[child.name] = len(ordered)
            ordered.append(child)
    if len(ordered) <= len(parts):
        return Contradiction(Code.GROUP_CYCLE, next(part.name for part in parts if part.name not in numbers))
    return _numbered(ordered, numbers, below)


def _numbered(ordered: Sequence[Part], numbers: dict[str, int], below: dict[str, list[Part]]) -> MinimumTree:
    all_children = [[numbers[child.name] for child in below.get(part.name, ())] for part in ordered]
    pods = [0 if below.get(part.name) else max(0, part.min_pods or 0) for part in ordered]
    least, parts = list(pods), [0] * len(ordered)
    children: list[tuple[int, ...]] = [()] * len(ordered)
    for node in reversed(range(len(ordered))):
        if node and not all_children[node]:
            continue
        able = children[node] = tuple(child for child in all_children[node] if least[child])
        parts[node] = _parts_needed(ordered[node].min_parts, len(able), len(all_children[node]))
        least[node] = _sum_of_least([least[child] for child in able], parts[node])
    return MinimumTree(
        names=tuple(part.name for part in ordered),
        parents=tuple(0 if not part.name else numbers[part.parent] for part in ordered),
        pods=tuple(pods),
        parts=tuple(parts),
        children=tuple(children),
        leaves=tuple(node for node in range(1, len(ordered)) if not all_children[node]),
        least=tuple(least),
    )


def _parts_needed(said: int | None, able: int, there: int) -> int:
    """Children that need no pods stand in for others only where those are too few."""
    if said is None:
        return able
    return min(said, able) if said <= there else said - (there - able)


def _costs(lacks: Sequence[int], parts: Sequence[int], children: Sequence[Sequence[int]], count: int) -> list[int]:
    costs = list(lacks)
    for node in reversed(range(count)):
        if children[node] or parts[node]:
            costs[node] = _sum_of_least([costs[child] for child in children[node]], parts[node])
    return costs


def _sum_of_least(costs: list[int], needed: int) -> int:
    if needed > len(costs):
        return NEVER
    return min(NEVER, sum(costs if needed == len(costs) else nsmallest(needed, costs)))


def _broken_part(parts: Sequence[Part]) -> Contradiction | None:
    known = {part.name for part in parts}
    twice = _first_twice(part.name for part in parts)
    if twice is not None:
        return Contradiction(Code.GROUP_NAME_TWICE, twice)
    for part in parts:
        if part.parent and part.parent not in known:
            return Contradiction(Code.GROUP_PARENT_NOT_FOUND, part.name)
        if part.min_pods is not None and part.min_parts is not None:
            return Contradiction(Code.GROUP_TWO_MINIMUMS, part.name)
    return None


def _first_twice(names: Iterable[str]) -> str | None:
    seen = {""}
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
