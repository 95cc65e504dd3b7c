"""Where the pods of a gang and its subgroups may be, and which subgroups start.

The domains that they ask for are resolved first (``place_bounds``); the search then walks down the tree of minimums.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.groups.quorum import Missing, Quorum
from scheduler.core.model.minimum_tree import MinimumTree
from scheduler.core.model.records import LevelConstraint, PodGroupRecord, PodRecord, TopologyRecord
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

    A Topology or a level that does not exist is a verdict: nobody guesses what was meant.
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

    The places that a nomination keeps were in the required domains when it was made. Until its victims are gone a node
    may get other labels, the Topology or the PodGroup may change, and pods of the gang may come to run somewhere else:
    so they are looked at again.
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


M = TypeVar("M")


class Tried(enum.Enum):
    """What became of one member."""

    PLACED = enum.auto()
    #: It fits nowhere; another one of its subgroup may.
    PASSED = enum.auto()
    #: The others would not be placed either.
    STOPPED = enum.auto()


class Trying(Protocol[M]):
    """Places members, and takes them back."""

    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place."""
        ...

    def failed(self, subgroup: str, placed: int) -> None:
        """A number of members of a subgroup were placed, and more are needed; "": of those that may be of any."""
        ...

    def checkpoint(self) -> M:
        """A point to come back to."""
        ...

    def rollback(self, mark: M) -> None:
        """Take back all places since ``mark``."""
        ...


@dataclass(slots=True)
class _Choice:
    """``needed`` of these nodes have to start, the best last."""

    needed: int
    nodes: list[int]


@dataclass(slots=True)
class _Level(Generic[M]):
    """A node that is being started. ``choices``: what is still to choose for it, the first last.

    ``mark``, ``taken`` and ``known``: what there was before.
    """

    node: int
    mark: M
    taken: int
    known: int
    choices: list[_Choice] = field(default_factory=list)
    has_failed: bool = False


@dataclass(slots=True)
class Search(Generic[M]):
    """One gang's. ``ready``: members that may be placed, in their order; they reach its minimum.

    Those subgroups start that are nearest to their minimum, or others in their place where these don't fit. At each
    level all that has to start is placed together, in the order of members. Where a level can do with some of its
    children they are tried one after another, and what one that failed was given is taken back. Each leaf is tried at
    most once, so the walk is linear in subgroups and members, and does not try all combinations: a child that fitted
    keeps its place although another one may have left more to the next.

    A member that looks for others (affinity, spread) and fitted nowhere is tried once more after those that came later.
    """

    state: Quorum
    ready: Sequence[PodRecord]
    trying: Trying[M]
    _costs: list[int] = field(init=False)
    #: Leaf -> places of its members in ``ready``.
    _of_leaf: dict[int, list[int]] = field(default_factory=dict)
    _levels: list[_Level[M]] = field(default_factory=list)
    #: UIDs of members that were placed, in order.
    _taken: list[str] = field(default_factory=list)
    #: What leaves asked that failed. Nothing comes free meanwhile, so others that ask the same fail too.
    _known: dict[Hashable, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._costs = self.state.costs(self.ready)
        numbers = self.state.tree.numbers()
        for place, pod in enumerate(self.ready):
            if (leaf := numbers.get(pod.subgroup)) is not None:
                self._of_leaf.setdefault(leaf, []).append(place)

    def run(self) -> bool:
        """Place as many members as the minimum needs, and return whether that is done. Else the caller rolls back."""
        if not self.state.has_choice(self.ready):
            return self._place(self.ready, self.state.missing(self.ready))
        self._enter(0)
        while True:
            level = self._levels[-1]
            if level.has_failed:
                self._leave(level)
                if not self._levels:
                    return False
            elif level.choices:
                self._go_on(level, level.choices[-1])
            elif len(self._levels) > 1:
                self._levels.pop()
                self._levels[-1].choices[-1].needed -= 1
            else:
                return self._place_rest()

    def _go_on(self, level: _Level[M], choice: _Choice) -> None:
        """Try the next child, if one is needed."""
        if not choice.needed:
            level.choices.pop()
        elif len(choice.nodes) < choice.needed:
            level.has_failed = True
        else:
            node = choice.nodes.pop()
            if self._asked(node) not in self._known:
                self._enter(node)

    def _enter(self, node: int) -> None:
        """Place what a node needs in any case."""
        level = _Level(node, self.trying.checkpoint(), len(self._taken), len(self._known))
        self._levels.append(level)
        leaves, choices = self.state.tree.fixed(self._costs, node)
        names, lacks = self.state.tree.names, self.state.lacks
        of_subgroup = {names[leaf]: lacks[leaf] for leaf in leaves}
        members = (self.ready[place] for place in merge(*(self._of_leaf[leaf] for leaf in leaves)))
        level.choices = [_Choice(choice.needed, list(choice.nodes[::-1])) for choice in reversed(choices)]
        level.has_failed = not self._place(members, Missing(sum(of_subgroup.values()), of_subgroup))

    def _leave(self, level: _Level[M]) -> None:
        """Take back what a node was given that can't start."""
        self.trying.rollback(level.mark)
        self._levels.pop()
        del self._taken[level.taken :]
        while len(self._known) > level.known:
            self._known.popitem()
        if (asked := self._asked(level.node)) is not None:
            self._known[asked] = None

    def _place(self, members: Iterable[PodRecord], missing: Missing) -> bool:
        """Place members until nothing is missing; one that fits nowhere is passed over."""
        asked, taken = dict(missing.of_subgroup), len(self._taken)
        passed = self._place_each(members, missing)
        if passed and len(self._taken) > taken:
            passed = self._place_each(passed, missing)
        if passed is None:
            return False
        if missing.is_reached:
            return True
        name = next((name for name, left in missing.of_subgroup.items() if left), "")
        self.trying.failed(name, asked.get(name, 0) - missing.of_subgroup.get(name, 0))
        return False

    def _place_each(self, members: Iterable[PodRecord], missing: Missing) -> list[PodRecord] | None:
        """Place those that are wanted; return those that may fit beside others placed since, None if all is over."""
        passed: list[PodRecord] = []
        for pod in members:
            if missing.is_reached:
                break
            if not missing.wants(pod):
                continue
            tried = self.trying.place(pod)
            if tried is Tried.STOPPED:
                return None
            if tried is Tried.PLACED:
                missing.take(pod)
                self._taken.append(pod.uid)
            elif pod.cls.rules is not None and pod.cls.rules.may_open:
                passed.append(pod)
        return passed

    def _place_rest(self) -> bool:
        """Place what the minimum in all needs beyond those of subgroups."""
        taken = set(self._taken)
        others = (pod for pod in self.ready if pod.uid not in taken)
        return self._place(others, Missing(max(0, self.state.of_all - len(taken)), {}))

    def _asked(self, node: int) -> Hashable:
        """What a leaf asks of nodes and queue; None for another node, and where a member is like no other.

        Priority and preemptibility say whether a member has to stay within a quota.
        """
        members = [self.ready[place] for place in self._of_leaf.get(node, ())]
        if not members or any(pod.alone for pod in members):
            return None
        return self.state.lacks[node], tuple((pod.cls, pod.priority, pod.is_preemptible) for pod in members)
