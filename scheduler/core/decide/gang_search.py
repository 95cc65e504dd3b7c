"""Which subgroups of a gang start: those nearest to their minimum, or others in their place where these don't fit.

A walk down the tree of minimums. At each level all that has to start is placed together, in the order of members. Where
a level can do with some of its children they are tried one after another, and what one that failed was given is taken
back. Each leaf is tried at most once, so the walk is linear in subgroups and members, and does not try all
combinations: a child that fitted keeps its place although another one may have left more to the next.

A member that looks for others (affinity, spread) and fitted nowhere is tried once more after those that came later.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Generic, Protocol, TypeVar

from scheduler.core.groups.quorum import Missing, Quorum
from scheduler.core.model.records import PodRecord

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
    """One gang's. ``ready``: members that may be placed, in their order; they reach its minimum."""

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
