"""How far a gang is from its minimum: what is bound, what is under way, what is missing. Counting only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.model.minimum_tree import NEVER, MinimumTree
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, SubgroupShort, Verdict

_NONE: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class Missing:
    """Members that are still to be placed: in all, and the least of each subgroup."""

    total: int
    of_subgroup: dict[str, int]
    #: Sum of ``of_subgroup``: a PodGroup may name thousands, and this is asked for each member.
    _of_subgroups: int = field(init=False)

    def __post_init__(self) -> None:
        self._of_subgroups = sum(self.of_subgroup.values())

    @property
    def is_reached(self) -> bool:
        """Whether the minimum is reached."""
        return self.total <= 0

    def wants(self, pod: PodRecord) -> bool:
        """Whether placing this pod brings the minimum nearer."""
        return self.of_subgroup.get(pod.subgroup, 0) > 0 or self.total > self._of_subgroups

    def take(self, pod: PodRecord) -> None:
        """Count a member that was placed."""
        self.total -= 1
        if self.of_subgroup.get(pod.subgroup, 0) > 0:
            self.of_subgroup[pod.subgroup] -= 1
            self._of_subgroups -= 1


@dataclass(slots=True)
class Quorum:
    """A gang's state. ``is_starting``: some members are under way, so nobody else is placed until they are shown.

    ``done``: members that have succeeded. ``is_below``: those that are bound or done don't satisfy the minimums.
    ``active``: members by subgroup that are bound; of a gang that has its minimum, those on their way besides.
    ``lacks``: what each leaf of the tree lacks; ``of_all``: what lacks of the minimum of pods in all. ``most``: how
    many pods may be needed for the minimums that are satisfied.
    """

    tree: MinimumTree
    minimum: int
    bound: int
    done: int
    lacks: Sequence[int]
    of_all: int
    total: int
    is_below: bool
    is_starting: bool
    active: Mapping[str, int]
    most: int
    #: Of ``done``: how many of each subgroup.
    succeeded: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        """Whether the minimum is bound, so that further members may come one at a time."""
        return self.total <= 0

    @property
    def above(self) -> int:
        """0 below the minimum, 1 at it, 2 above it."""
        return 0 if self.is_below else 1 + (sum(self.active.values()) + self.done > self.most)

    @property
    def above_in_turn(self) -> int:
        """The same for its turn: a minimum that is on its way counts as bound."""
        return 1 if self.is_starting and not self.is_met else self.above

    @property
    def is_broken(self) -> bool:
        """Whether some run, and too few."""
        return self.bound > 0 and self.is_below

    def costs(self, ready: Iterable[PodRecord]) -> list[int]:
        """The fewest of these pods that satisfy each node of the tree; NEVER where they are not enough."""
        if len(self.lacks) == 1:
            return self.tree.costs(self.lacks)
        there = Counter(pod.subgroup for pod in ready)
        names = self.tree.names
        able = [lack if lack <= there[names[node]] else NEVER for node, lack in enumerate(self.lacks)]
        return self.tree.costs(able)

    def missing(self, ready: Iterable[PodRecord]) -> Missing:
        """What is missing, to be counted down: of subgroups that these pods can complete, else of the nearest ones."""
        costs = self.costs(ready)
        if costs[0] >= NEVER:
            costs = self.tree.costs(self.lacks)
        names, lacks = self.tree.names, self.lacks
        of_subgroup = {names[leaf]: lacks[leaf] for leaf in self.tree.chosen(costs) if lacks[leaf]}
        return Missing(max(self.of_all, sum(of_subgroup.values())), of_subgroup)

    def is_reachable(self, ready: Sequence[PodRecord]) -> bool:
        """Whether these pods are enough."""
        return max(self.of_all, self.costs(ready)[0]) <= len(ready)

    def has_choice(self, ready: Sequence[PodRecord]) -> bool:
        """Whether these pods reach the minimum in more ways than one, by other subgroups."""
        return len(self.lacks) > 1 and bool(self.tree.fixed(self.costs(ready), 0)[1])

    def needed(self, ready: Iterable[PodRecord]) -> list[PodRecord]:
        """The first of these pods that are enough, in their order; all that help, if they are not enough."""
        ready, needed = list(ready), list[PodRecord]()
        missing = self.missing(ready)
        for pod in ready:
            if missing.is_reached:
                break
            if missing.wants(pod):
                missing.take(pod)
                needed.append(pod)
        return needed

    def next_up(self, waiting: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """Of the waiting members, in their order, those that come next: its missing minimum, or one more member."""
        return self.needed(pod for pod in waiting if not pod.gated) or waiting[:1]

    def not_ready(self, waiting: Iterable[PodRecord], ready: Sequence[PodRecord]) -> Verdict:
        """The verdict while members are not there yet."""
        gated = Counter(pod.subgroup for pod in waiting if pod.gated)
        return Verdict(
            code=Code.GANG_NOT_READY,
            required=self.minimum,
            present=self.bound + self.done + len(ready),
            gated=gated.total(),
            subgroup=self.short(ready, gated),
        )

    def short(self, ready: Sequence[PodRecord] = (), gated: Mapping[str, int] = _NONE) -> SubgroupShort | None:
        """The first subgroup that these pods don't complete: a leaf, or one that can't choose among enough others."""
        tree, costs, node = self.tree, self.costs(ready), 0
        if costs[0] < NEVER:
            return None
        while children := tree.children[node]:
            if tree.parts[node] != len(children):
                break
            node = next(child for child in children if costs[child] >= NEVER)
        name = tree.names[node]
        if node in tree.leaves:
            there = Counter(pod.subgroup for pod in ready)[name]
            required = tree.pods[node]
            return SubgroupShort(name, required, required - self.lacks[node] + there, gated.get(name, 0))
        able = sum(costs[child] < NEVER for child in children)
        return SubgroupShort(name, tree.parts[node], able, is_of_subgroups=True)

    def failed_in(self, subgroup: str, placed: int) -> SubgroupShort | None:
        """The subgroup for which no more than this number got a place; None where that says nothing new."""
        node = self.tree.numbers().get(subgroup, 0)
        required = self.tree.pods[node]
        return SubgroupShort(subgroup, required, required - self.lacks[node] + placed) if node else None


def quorum(
    group: PodGroupRecord,
    members: Iterable[PodRecord],
    is_in_flight: Callable[[str], bool],
    succeeded: Mapping[str, int] = _NONE,
) -> Quorum:
    """Count a gang's members. A member that is being deleted counts no more; one that is bound counts.

    ``succeeded``: how many of each subgroup have done their work (succeeded.py). They are as good as bound for members
    that could not reach the minimum alone; as many as it needs start together, even if others succeeded before.
    """
    members, tree = [pod for pod in members if not pod.deleting], group.tree
    bound = Counter(pod.subgroup for pod in members if pod.node)
    living, there = Counter(pod.subgroup for pod in members), bound + Counter(succeeded)
    counted = tree.lacking(there)
    if succeeded:
        lacks, of_all = _lacking(group, bound, living, there)
    else:
        lacks, of_all = counted, max(0, group.minimum - bound.total())
    underway = Counter(
        pod.subgroup for pod in members if not pod.node and (is_in_flight(pod.uid) or pod.uid in group.planned)
    )
    costs = tree.costs(counted)
    total = max(of_all, (tree.costs(lacks) if succeeded else costs)[0])
    return Quorum(
        tree=tree,
        minimum=max(group.minimum, tree.fewest),
        bound=bound.total(),
        done=sum(succeeded.values()),
        lacks=lacks,
        of_all=of_all,
        total=total,
        is_below=group.minimum > there.total() or costs[0] > 0,
        is_starting=bool(underway),
        active=bound if total > 0 else bound + underway,
        most=max(group.minimum, tree.needed_at_most(costs)),
        succeeded=succeeded,
    )


def _lacking(
    group: PodGroupRecord, bound: Counter[str], living: Counter[str], there: Counter[str]
) -> tuple[list[int], int]:
    """What each leaf lacks, and what lacks in all, where some have succeeded."""
    tree = group.tree
    if group.minimum <= living.total() and tree.is_satisfied(living):
        return tree.lacking(bound), max(0, group.minimum - bound.total())
    lacks = [0] * len(tree.names)
    for name, leaf in tree.numbers().items():
        lacks[leaf] = _lacking_of(tree.pods[leaf], there[name], bound=bound[name], living=living[name])
    return lacks, _lacking_of(group.minimum, there.total(), bound=bound.total(), living=living.total())


def _lacking_of(minimum: int, there: int, *, bound: int, living: int) -> int:
    return max(0, minimum - there, min(minimum, living) - bound)
