"""What a gang and its subgroups ask of the places of their pods, resolved: domains of a tree, and who runs where.

A Topology or a level that is not there is a verdict: nobody guesses what was meant. Places that a nomination keeps were
in the required domains when it was made. Until its victims are gone a node may get other labels, the Topology or the
PodGroup may change, and pods of the gang may come to run somewhere else: so they are looked at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.minimum_tree import MinimumTree
from scheduler.core.model.records import LevelConstraint, PodGroupRecord, TopologyRecord
from scheduler.core.model.verdict import Code, TopologyCause, Verdict
from scheduler.core.nodes.table import Int64s
from scheduler.core.topology.topologies import Domain, Tree
from wire.names import ANY_TOPOLOGY

#: The most Topologies that a verdict names.
_MOST_NAMED: Final = 3
#: The most constraints that are nested in each other: each level below multiplies what is tried.
_DEEPEST: Final = 16
#: The most levels of subgroups that a search for places goes down.
_DEEPEST_TREE: Final = 64


@dataclass(frozen=True, slots=True)
class PlaceBound:
    """One subgroup's, or the gang's. ``required`` and ``preferred``: depths of levels in ``tree``; 0 is none.

    ``running``: places in the tree's order of its pods that run or are on their way, with how many are there.
    """

    asked: LevelConstraint
    tree: Tree
    required: int
    preferred: int
    running: dict[int, int]

    def add(self, position: int) -> None:
        """One more of its pods is at this position."""
        place = int(np.flatnonzero(self.tree.order == position)[0])
        self.running[place] = self.running.get(place, 0) + 1

    @property
    def running_in(self) -> tuple[str, ...]:
        """The names of the smallest domains in which its pods run."""
        return tuple(self.tree.name(domain) for domain in self.held_by(self.preferred))

    def held_by(self, level: int) -> list[Domain]:
        """The domains of a level in which its pods run, those with most of them first."""
        counts: Counter[Domain] = Counter()
        for place, pods in self.running.items():
            if (domain := self.tree.domain_of(place, level)) is not None:
                counts[domain] += pods
        return [domain for domain, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0].start))]


def place_bounds(snapshot: Snapshot, group: PodGroupRecord) -> dict[int, PlaceBound] | Verdict:
    """What it asks, by the number of the node in its tree of minimums; or why that can't be told.

    Linear in subgroups and members.
    """
    numbers = {name: number for number, name in enumerate(group.tree.names)}
    asks = {numbers[name]: asked for name, asked in group.levels if name in numbers}
    within = nearest(group.tree, asks)
    if _deepest(group.tree, asks) > _DEEPEST:
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=f"more than {_DEEPEST} nested topologyConstraints")
    if _deepest(group.tree, range(len(group.tree.names))) > _DEEPEST_TREE:
        detail = f"topologyConstraint in subgroups of more than {_DEEPEST_TREE} levels"
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=detail)
    running, found, trees = _running(snapshot, group, within), dict[int, PlaceBound](), dict[str, _Placed]()
    for number, asked in asks.items():
        topology = _meant(snapshot, asked)
        if isinstance(topology, Verdict):
            return topology
        required, preferred = topology.depth_of(asked.required), topology.depth_of(asked.preferred)
        for level, depth in ((asked.required, required), (asked.preferred, preferred)):
            if level and depth is None:
                return _no_level(asked, level)
        if topology.name not in trees:
            trees[topology.name] = _Placed(snapshot.topologies.tree(topology, snapshot.ledger))
        tree, there = trees[topology.name].tree, trees[topology.name].at(running.get(number, {}))
        found[number] = PlaceBound(asked, tree, required or 0, max(preferred or 0, required or 0), there)
    return found


class _Placed:
    """A tree, and where positions are in it, sorted once when that is first asked."""

    __slots__ = ("_places", "tree")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._places: list[int] = []

    def at(self, positions: Mapping[int, int]) -> dict[int, int]:
        """What is said of positions, by their places in the order."""
        if positions and not self._places:
            self._places = self.tree.places().tolist()
        return {self._places[position]: pods for position, pods in positions.items()}


def nearest(tree: MinimumTree, asks: Container[int]) -> list[int]:
    """Of each node the nearest one at or above it that asks for a place; -1 without one."""
    found = [-1] * len(tree.names)
    for number, parent in enumerate(tree.parents):  # parents come before their children
        found[number] = number if number in asks else found[parent] if number else -1
    return found


def records_of(snapshot: Snapshot, group: PodGroupRecord) -> tuple[tuple[TopologyRecord, ...], ...]:
    """The Topologies that it may mean, as they are now: what was learned of it holds as long as they are the same."""
    return tuple(snapshot.topologies.meant(asked) for _, asked in group.levels)


def requires_levels(group: PodGroupRecord) -> bool:
    """Whether its pods, or some of them, have to be in one domain."""
    return any(asked.required for _, asked in group.levels)


def _meant(snapshot: Snapshot, asked: LevelConstraint) -> TopologyRecord | Verdict:
    """The Topology of a constraint, or why there is none, or more than one."""
    found = snapshot.topologies.meant(asked)
    if len(found) == 1:
        return found[0]
    if not found and (kinds := snapshot.topologies.not_read()):
        return Verdict(code=Code.NOT_READ, detail=kinds)
    if asked.topology != ANY_TOPOLOGY:
        return Verdict(code=Code.TOPOLOGY_NOT_FOUND, detail=asked.topology or '""')
    level = asked.required or asked.preferred
    if not found:
        return Verdict(code=Code.TOPOLOGY_NOT_FOUND, detail=f"with level {level}")
    names = ", ".join(each.name for each in found[:_MOST_NAMED]) + (", ..." if found[_MOST_NAMED:] else "")
    return Verdict(code=Code.TOPOLOGY_AMBIGUOUS, topology=TopologyCause(topology=names, level=level))


def _no_level(asked: LevelConstraint, level: str) -> Verdict:
    cause = TopologyCause(topology=asked.topology, level=level, is_required=level == asked.required)
    return Verdict(code=Code.TOPOLOGY_LEVEL_NOT_FOUND, topology=cause)


def _running(snapshot: Snapshot, group: PodGroupRecord, within: Sequence[int]) -> dict[int, Counter[int]]:
    """Of each node that asks: where pods of it, and of all below it, run or are on their way to, by position."""
    found: dict[int, Counter[int]] = {}
    position_of, leaves = snapshot.ledger.in_order().position_of, group.tree.numbers()
    for pod in snapshot.pods.members(group.namespace, group.name):
        nodes = (pod.node,) if pod.node else dict.fromkeys(each.node for each in snapshot.commits.under_way(pod.uid))
        positions = [position_of[node] for node in nodes if node in position_of]
        at = within[leaves.get(pod.subgroup, 0)] if positions else -1
        while at >= 0:
            found.setdefault(at, Counter()).update(positions)
            at = within[group.tree.parents[at]] if at else -1
    return found


def _deepest(tree: MinimumTree, asks: Container[int]) -> int:
    """How many of these nodes are nested in each other at most."""
    depths = [0] * len(tree.names)
    for number, parent in enumerate(tree.parents):
        depths[number] = (depths[parent] if number else 0) + (number in asks)
    return max(depths)


def are_in_domains(
    tree: MinimumTree, bounds: Mapping[int, PlaceBound], places: Iterable[tuple[str, int | None]]
) -> bool:
    """Whether these pods would be in one required domain with each other, and in one where others run.

    ``places``: subgroups and positions; None: the node is not there. ``bounds``: by the node of ``tree``.
    """
    required = {node: bound for node, bound in bounds.items() if bound.required}
    if not required:
        return True
    numbers, in_order = tree.numbers(), dict[int, Int64s]()
    found: dict[int, set[Domain | None]] = {}
    for subgroup, position in places:
        node = numbers.get(subgroup, 0)
        while True:
            if (bound := required.get(node)) is not None:
                if id(bound.tree) not in in_order:
                    in_order[id(bound.tree)] = bound.tree.places()
                place = None if position is None else int(in_order[id(bound.tree)][position])
                domain = None if place is None else bound.tree.domain_of(place, bound.required)
                found.setdefault(node, set()).add(domain)
            if not node:
                break
            node = tree.parents[node]
    return all(_is_one(required[node], domains) for node, domains in found.items())


def _is_one(bound: PlaceBound, domains: set[Domain | None]) -> bool:
    held = {*bound.held_by(bound.required)}
    return None not in domains and (domains <= held if held else len(domains) == 1)
