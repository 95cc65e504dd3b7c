"""What the start of each subgroup is made of: subgroups with places of their own, leaves, choices, and the members.

A subgroup that has to be in one domain needs a domain for all of its pods that start, not for its own minimum only. So
what the minimum asks in all, beyond the minimums of subgroups, is counted to subgroups before domains are searched: by
the first members in their order. These are their *shares*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler.core.decide.domain_rooms import size
from scheduler.core.decide.place_bounds import PlaceBound
from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.minimum_tree import Choice
from scheduler.core.model.records import PodRecord
from scheduler.core.topology.topologies import ROOT


def shares_of_leaves(state: Quorum, ready: Sequence[PodRecord]) -> dict[int, int]:
    """How many members of each leaf start, where more do than have to; {} where subgroups may be chosen between."""
    if state.of_all <= state.costs(ready)[ROOT] or state.has_choice(ready):
        return {}
    numbers, least = state.tree.numbers(), state.missing(ready).of_subgroup
    counts = Counter(pod.subgroup for pod in state.needed(ready))
    return {numbers[name]: count for name, count in counts.items() if name in numbers and count > least.get(name, 0)}


class Parts(NamedTuple):
    """``bounded``: nodes below that ask for places of their own, in the order in which they choose.

    ``leaves``: others, whose members are placed here.
    """

    bounded: list[int]
    leaves: list[int]
    choices: list[Choice]


@dataclass(slots=True)
class StartParts:
    """One gang's. ``bounds``: nodes that ask for places. ``shares``: of leaves, as above."""

    state: Quorum
    ready: Sequence[PodRecord]
    bounds: Mapping[int, PlaceBound]
    shares: Mapping[int, int] = field(default_factory=dict)
    _costs: list[int] = field(init=False)
    _of_leaf: dict[int, list[PodRecord]] = field(default_factory=dict)
    #: Children, by parent, that need not start themselves and have leaves with shares below them.
    _more: dict[int, list[int]] = field(default_factory=dict)
    _parts: dict[int, Parts] = field(default_factory=dict)
    _needed: dict[int, list[PodRecord]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._costs = self.state.costs(self.ready)
        numbers = self.state.tree.numbers()
        for pod in self.ready:
            self._of_leaf.setdefault(numbers.get(pod.subgroup, ROOT), []).append(pod)
        self._add_shares()

    def _add_shares(self) -> None:
        reached, tree = {ROOT}, self.state.tree
        open_nodes = [ROOT] if self.shares else []
        while open_nodes:
            fixed, _ = tree.choice(self._costs, open_nodes.pop())
            reached.update(fixed)
            open_nodes += fixed
        for leaf in sorted(self.shares):
            node = leaf
            while node not in reached:
                reached.add(node)
                self._more.setdefault(tree.parents[node], []).append(node)
                node = tree.parents[node]

    def lacks(self, leaf: int) -> int:
        """How many members of a leaf have to start."""
        return self.shares.get(leaf, self.state.lacks[leaf])

    def of_leaf(self, leaf: int) -> Sequence[PodRecord]:
        """Its members, in their order."""
        return self._of_leaf.get(leaf, ())

    def of(self, node: int) -> Parts:
        """What a node needs in any case, and what is to be chosen."""
        if node not in self._parts:
            self._parts[node] = self._found(node)
        return self._parts[node]

    def _found(self, node: int) -> Parts:
        parts, open_nodes = Parts([], [], []), [node]
        while open_nodes:
            at = open_nodes.pop()
            if at != node and at in self.bounds:
                parts.bounded.append(at)
            elif self._is_leaf(at):
                parts.leaves.extend([at] if at != ROOT and (self._costs[at] or at in self.shares) else [])
            else:
                fixed, choice = self._children(at)
                open_nodes += reversed(fixed)
                parts.choices.extend([] if choice is None else [choice])
        parts.bounded.sort(key=self._order)
        return parts

    def _order(self, node: int) -> tuple[bool, list[int]]:
        """Nodes of which pods run come first, which can go nowhere else; then those that ask most."""
        bound = self.bounds[node]
        is_held = bool(bound.required and bound.held_by(bound.required))
        return not is_held, [sum(asked) for asked in zip(*map(size, self.needed(node)), strict=True)]

    def _is_leaf(self, node: int) -> bool:
        return not self.state.tree.children[node] and node not in self._more

    def _children(self, node: int) -> tuple[list[int], Choice | None]:
        """Children that have to start, and a choice between others."""
        fixed, choice = self.state.tree.choice(self._costs, node)
        return [*fixed, *self._more.get(node, ())], choice

    def needed(self, node: int) -> list[PodRecord]:
        """The members that start a node with the fewest pods."""
        if node not in self._needed:
            self._needed[node] = self.state.needed(self.ready) if node == ROOT else self._found_needed(node)
        return self._needed[node]

    def _found_needed(self, node: int) -> list[PodRecord]:
        found, open_nodes = list[PodRecord](), [node]
        while open_nodes:
            at = open_nodes.pop()
            if self._is_leaf(at):
                found += self.of_leaf(at)[: self.lacks(at)]
                continue
            fixed, choice = self._children(at)
            open_nodes += reversed([*fixed, *(choice.nodes[: choice.needed] if choice is not None else ())])
        return found

    def has_choice(self, node: int) -> bool:
        """Whether a node can be started in more ways than one, so that others may fit where the nearest don't."""
        bounded, leaves, choices = self.of(node)
        if choices or any(map(self.has_choice, bounded)):
            return True
        if node == ROOT and (not leaves or self.state.of_all > self._costs[ROOT]):
            return _differ(self.ready, len(self.needed(ROOT)))
        return any(_differ(self.of_leaf(leaf), self.lacks(leaf)) for leaf in leaves)

    def under(self, node: int) -> Sequence[PodRecord]:
        """All members that may be of a node."""
        if node == ROOT:
            return self.ready
        found, open_nodes = list[PodRecord](), [node]
        while open_nodes:
            at = open_nodes.pop()
            found += self.of_leaf(at)
            open_nodes += [*self.state.tree.children[at], *self._more.get(at, ())]
        return found

    def is_like_no_other(self, node: int) -> bool:
        """Whether what a node asks can't be compared: it has subgroups, or a member is like no other."""
        return not self._is_leaf(node) or any(pod.alone for pod in self.needed(node))


def _differ(members: Sequence[PodRecord], needed: int) -> bool:
    """Whether there are more than needed, and not all of one class: then others may fit where some don't."""
    return len(members) > needed and len({pod.cls for pod in members}) > 1
