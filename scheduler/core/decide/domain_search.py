"""The start of a gang whose pods, or those of its subgroups, have to be or had better be in one domain of a level.

Depth first over the tree of minimums: the candidates of a subgroup are domains inside the one that its parent was
given. Of the levels from the preferred one up to the required one the deepest is tried first.

A subgroup that has to be in one domain needs a domain for all of its pods that start, not for its own minimum only. So
what the minimum asks in all, beyond the minimums of subgroups, is counted to subgroups before they are placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from scheduler.core.decide.capacity import DomainRooms, pod_slots, size
from scheduler.core.decide.gang_search import PlaceBound, Tried
from scheduler.core.decide.placer import Placer
from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.minimum_tree import Choice
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import DomainRoom
from scheduler.core.snapshot.node_count import NodeMask, both
from scheduler.core.topology.topologies import ROOT, Domain, Slots


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


M = TypeVar("M")

#: The most domains of a level that are tried for one subgroup, and the most in all for a gang.
_TRIES: Final = 64
_TRIES_IN_ALL: Final = 1_024
#: The most pods that are placed: for each member that is ready, and beside that.
_PLACED_EACH: Final = 8
_PLACED_ANYWAY: Final = 2_000


class TryingWithin(Protocol[M]):
    """Places members on nodes of a mask, and takes them back."""

    within: NodeMask

    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place."""
        ...

    def failed(self, subgroup: str, placed: int) -> None:
        """A number of members of a subgroup were placed, and more are needed."""
        ...

    def checkpoint(self) -> M:
        """A point to come back to."""
        ...

    def rollback(self, mark: M) -> None:
        """Take back all places since ``mark``."""
        ...


class Unsatisfied(NamedTuple):
    """The first required level that no domain satisfied: of which node, for how many pods, and the best domains."""

    node: int
    bound: PlaceBound
    pods: int
    best: tuple[DomainRoom, ...]


class _Inside(NamedTuple):
    """Where a node's pods may be. ``domain``: of the nearest bound, None without one."""

    mask: NodeMask
    bound: PlaceBound | None = None
    domain: Domain | None = None


class _Mark(NamedTuple, Generic[M]):
    """What stood before: on paper, members with a place, and nodes that were started."""

    trying: M
    taken: int
    where: int


@dataclass(slots=True)
class DomainSearch(Generic[M]):
    """One gang's. ``ready``: members that may be placed, in their order; they reach its minimum."""

    state: Quorum
    ready: Sequence[PodRecord]
    trying: TryingWithin[M]
    bounds: Mapping[int, PlaceBound]
    placer: Placer
    with_idle: bool = False
    #: The nodes that all of it may be on.
    nodes: NodeMask = None
    unsatisfied: Unsatisfied | None = None
    is_cut: bool = False
    #: How many domains were tried, and how often what all of them take was counted.
    tries: int = 0
    _parts: StartParts = field(init=False)
    _numbers: dict[str, int] = field(init=False)
    #: Where nodes were started that stand.
    _where: dict[int, _Inside] = field(default_factory=dict)
    _taken: dict[str, None] = field(default_factory=dict)
    _is_over: bool = False
    _placed: int = 0

    def __post_init__(self) -> None:
        self._parts = StartParts(self.state, self.ready, self.bounds, shares_of_leaves(self.state, self.ready))
        self._numbers = self.state.tree.numbers()

    def run(self) -> bool:
        """Place as many members as the minimum needs, and return whether that is done. Else the caller rolls back.

        First by the shares of subgroups in it; then each has its own minimum, and others go beside those.
        """
        mark = self._checkpoint()
        if self._satisfied(ROOT, _Inside(self.nodes)):
            return True
        if self._is_over or not self._parts.shares:
            return False
        self._rollback(mark)
        self._parts = StartParts(self.state, self.ready, self.bounds)
        return self._satisfied(ROOT, _Inside(self.nodes))

    def _checkpoint(self) -> _Mark[M]:
        return _Mark(self.trying.checkpoint(), len(self._taken), len(self._where))

    def _rollback(self, mark: _Mark[M]) -> None:
        self.trying.rollback(mark.trying)
        while len(self._taken) > mark.taken:
            self._taken.popitem()
        while len(self._where) > mark.where:
            self._where.popitem()

    # --- the tree of minimums ------------------------------------------------------------------------------------
    def _satisfied(self, node: int, inside: _Inside) -> bool:
        """Start a node inside a domain, in the first of its own domains that takes it."""
        bound = self.bounds.get(node)
        if bound is None:
            return self._started(node, inside)
        needed = self._parts.needed(node)
        for domain in self._candidates(node, bound, needed, inside.mask):
            mark = self._checkpoint()
            mask = None if domain.level == ROOT else bound.tree.mask(domain)
            if self._started(node, _Inside(both(inside.mask, mask), bound, domain)):
                return True
            self._rollback(mark)
            if self._is_over:
                break
        if bound.required and self.unsatisfied is None and (self.is_cut or not self._is_over):
            self.unsatisfied = self._why(node, bound, needed, inside.mask)
        return False

    def _started(self, node: int, inside: _Inside) -> bool:
        """Start all that a node needs inside a domain: subgroups with domains of their own first."""
        bounded, leaves, choices = self._parts.of(node)
        if not all(self._satisfied(each, inside) for each in bounded):
            return False
        self._where[node] = inside
        members, spare = list[PodRecord](), dict[str, list[PodRecord]]()
        for leaf in leaves:
            of_leaf, lacks = self._parts.of_leaf(leaf), self._parts.lacks(leaf)
            members += of_leaf[:lacks]
            spare[self.state.tree.names[leaf]] = [*of_leaf[lacks:]]
        if node == ROOT and not self.state.tree.leaves:
            members = list(self._parts.needed(ROOT))
            taken = {pod.uid for pod in members}
            others = [pod for pod in self.ready if pod.uid not in taken]
            spare = dict.fromkeys((pod.subgroup for pod in members), others)
        if not self._place(members, inside, spare) or not all(self._chosen(choice, inside) for choice in choices):
            return False
        return node != ROOT or self._rest(inside)

    def _chosen(self, choice: Choice, inside: _Inside) -> bool:
        """Start as many of these nodes as are needed; one that can't start is passed over."""
        needed, failed = choice.needed, set[Hashable]()
        for node in choice.nodes:
            if not needed or self._is_over:
                break
            if (asked := self._asked(node)) in failed:
                continue
            mark = self._checkpoint()
            if self._satisfied(node, inside):
                needed -= 1
                continue
            self._rollback(mark)
            failed.add(asked)
        return not needed

    def _asked(self, node: int) -> Hashable:
        """What a node asks: of two that ask the same the second fails where the first did."""
        if self._parts.is_like_no_other(node):
            return node
        bound, members = self.bounds.get(node), self._parts.needed(node)
        return bound and (bound.asked, tuple(bound.running)), tuple((pod.cls, pod.priority) for pod in members)

    def _rest(self, inside: _Inside) -> bool:
        """What the minimum in all asks beyond those of subgroups."""
        lacks = max(0, self.state.of_all - len(self._taken))
        for pod in self.ready:
            if not lacks or self._is_over:
                break
            if pod.uid in self._taken or (where := self._inside_of(pod, inside)) is None:
                continue
            self.trying.within = where.mask
            lacks -= self._placed_one(pod)
        if lacks and not self._is_over:
            self.trying.failed("", 0)
        return not lacks

    def _inside_of(self, pod: PodRecord, inside: _Inside) -> _Inside | None:
        """Where a member beyond the minimum of its subgroup has to be; None where that is not known."""
        node = self._numbers.get(pod.subgroup, ROOT)
        while node and node not in self._where:
            bound = self.bounds.get(node)
            if bound is not None and bound.required:
                held = bound.held_by(bound.required)
                return _Inside(both(inside.mask, bound.tree.mask(*held))) if held else None
            node = self.state.tree.parents[node]
        where = self._where.get(node, inside)
        return _Inside(both(inside.mask, where.mask))

    # --- domains -------------------------------------------------------------------------------------------------
    def _candidates(
        self, node: int, bound: PlaceBound, needed: Sequence[PodRecord], mask: NodeMask
    ) -> Iterator[Domain]:
        """Domains that may take these pods, by an upper bound: deepest level first, the tightest first."""
        if self.tries >= _TRIES_IN_ALL:
            self.is_cut = True
            return
        instead = self._parts.under(node) if self._parts.has_choice(node) else ()
        room = DomainRooms(self.placer, bound, needed, mask, with_idle=self.with_idle, instead=instead)
        failed, before = set[Hashable](), self.tries
        for level in range(bound.preferred, bound.required - 1, -1):
            tries = 0
            for domain in room.fitting(level):
                if (alike := room.alike(domain)) in failed:
                    continue
                if tries >= _TRIES or self.tries >= _TRIES_IN_ALL:
                    self.is_cut = True
                    break
                tries, self.tries = tries + 1, self.tries + 1
                yield domain
                failed.add(alike)
        self.tries += self.tries == before  # what the domains take was counted

    def _why(self, node: int, bound: PlaceBound, needed: Sequence[PodRecord], mask: NodeMask) -> Unsatisfied:
        room = DomainRooms(self.placer, bound, needed, mask, with_idle=self.with_idle)
        return Unsatisfied(node, bound, len(needed), room.best())

    # --- members -------------------------------------------------------------------------------------------------
    def _place(self, members: Sequence[PodRecord], inside: _Inside, spare: Mapping[str, list[PodRecord]]) -> bool:
        """Place all these members in a domain, those of one class divided over the domains below it.

        ``spare``: of each subgroup those that may be placed where one of them fits nowhere.
        """
        counts = Counter(pod.cls for pod in members)
        if len(counts) == 1 and inside.bound is not None and inside.domain is not None:
            left = self._place_in_parts(members, inside)
        else:
            left = sorted(members, key=size) if len(counts) > 1 else list(members)
        return self._place_each(left, inside.mask, spare)

    def _place_in_parts(self, members: Sequence[PodRecord], inside: _Inside) -> list[PodRecord]:
        """Place equal members part by part; return those that found no place in theirs."""
        if inside.bound is None or inside.domain is None:
            return list(members)
        tree = inside.bound.tree
        slots = Slots(tree, pod_slots(self.placer, members[0].cls, inside.mask, with_idle=self.with_idle))
        if slots.of(inside.domain) < len(members):
            return list(members)
        left, waiting = list[PodRecord](), list(reversed(members))
        for part in slots.split(inside.domain, len(members)):
            self.trying.within = both(inside.mask, tree.mask(part.domain))
            for _ in range(part.pods):
                pod = waiting.pop()
                if not self._placed_one(pod):
                    left.append(pod)
                if self._is_over:
                    return []
        return left

    def _place_each(self, members: list[PodRecord], mask: NodeMask, spare: Mapping[str, list[PodRecord]]) -> bool:
        """Place each in the same domain, or a spare one; those that others may let in are tried once more."""
        passed = list[PodRecord]()
        for pod in members:
            self.trying.within = mask
            if self._is_over:
                return False
            if self._placed_one(pod):
                continue
            if pod.cls.rules is not None and pod.cls.rules.may_open:
                passed.append(pod)
            elif left := spare.get(pod.subgroup):
                members.append(left.pop())
            else:
                self.trying.failed(pod.subgroup, 0)
                return False
        self.trying.within = mask
        return not self._is_over and all(self._placed_one(pod) for pod in passed)

    def _placed_one(self, pod: PodRecord) -> bool:
        if self._placed >= _PLACED_ANYWAY + _PLACED_EACH * len(self.ready):
            self.is_cut = self._is_over = True
            return False
        self._placed += 1
        tried = self.trying.place(pod)
        if tried is Tried.PLACED:
            self._taken[pod.uid] = None
        elif tried is Tried.STOPPED:
            self._is_over = True
        return tried is Tried.PLACED
