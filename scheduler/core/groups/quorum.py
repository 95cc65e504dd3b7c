"""How far a gang is from its minimum, and who comes first of its members beyond it. Counting only.

What counts follows from the stored pods alone, so that a scheduler counts after a restart as it did before.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

import msgspec

from scheduler.core.model.facts import Membership
from scheduler.core.model.minimum_tree import NEVER, Contradiction, MinimumTree, Part, minimum_tree
from scheduler.core.model.records import Minimums, PodGroupRecord, PodRecord, SucceededMember
from scheduler.core.model.verdict import Code, SubgroupShort, Verdict
from wire import rfc3339
from wire.units import SECOND_NS

_NONE: Final[Mapping[str, int]] = {}


class Succeeded:
    """By UID, as long as their pods are kept in the API server: a few words each.

    They count as bound, so a member that is made again after them may still start. Only a count may depend on them:
    their pods hold nothing, and have no record.
    """

    __slots__ = ("_members", "_of_group")

    def __init__(self) -> None:
        self._members: dict[str, SucceededMember] = {}
        self._of_group: Membership[str] = Membership()

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def put(self, member: SucceededMember) -> bool:
        """Take a member that has succeeded; return whether that was not known."""
        is_news = self._members.get(member.uid) != member
        self._members[member.uid] = member
        self._of_group.move(member.uid, f"{member.namespace}/{member.pod_group}")
        return is_news

    def drop(self, uid: str) -> SucceededMember | None:
        """Its pod is gone; return what was known of it, None if it was no member that had succeeded."""
        self._of_group.move(uid, "")
        return self._members.pop(uid, None)

    def of(self, group: PodGroupRecord, members: Iterable[PodRecord]) -> Mapping[str, int]:
        """Count those of this gang by subgroup. ``members``: its pods that have not ended.

        A PodGroup that somebody made for one workload, and that goes with it, has no other members. One that people
        wrote may be used again while the pods of an earlier run are still there, and a run may not start in part
        because of those. So there only pods count that have the same controller as a member that is still to run, or,
        without a controller, that ended in a later second than such a member was created: both were there at one time.
        """
        found = self._of_group.at(f"{group.namespace}/{group.name}")
        if not found:
            return _NONE
        controllers, created = set(), []
        for pod in members:
            if pod.controller:
                controllers.add(pod.controller)
            else:
                created.append(pod.created)
        since_s = _seconds(min(created, default=""))
        return Counter(
            member.subgroup
            for member in map(self._members.__getitem__, found)
            if group.controller
            or member.controller in controllers
            or (not member.controller and member.ended_s > since_s)
        )


def _seconds(created: str) -> float:
    """A time as the API server writes it, always in one form and in UTC; infinite for none."""
    created_ns = rfc3339.parse_ns(created)
    return inf if created_ns is None else created_ns // SECOND_NS


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
    ``is_kept``: they satisfy those that the gang had before its minimums rose, so it has lost nobody.
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
    is_kept: bool = False

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
        """Whether some run, and too few of those that did."""
        return self.bound > 0 and self.is_below and not self.is_kept

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
        waiting = list(waiting)
        gated = Counter(pod.subgroup for pod in waiting if pod.gated)
        short = self.short(ready, gated)
        if short is not None and (stray := self._stray(waiting)):
            short = msgspec.structs.replace(short, stray=stray)
        return Verdict(
            code=Code.GANG_NOT_READY,
            required=self.minimum,
            present=self.bound + self.done + len(ready),
            gated=gated.total(),
            subgroup=short,
        )

    def _stray(self, waiting: Iterable[PodRecord]) -> str:
        """The first subgroup that pods name and the PodGroup does not count pods in; "" if there is none."""
        leaves = self.tree.numbers()
        return min((pod.subgroup for pod in waiting if pod.subgroup and pod.subgroup not in leaves), default="")

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

    ``succeeded``: how many of each subgroup have done their work (``Succeeded``). They are as good as bound for members
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
        is_kept=group.kept is not None and group.kept.are_met(there),
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


class RaisedMinimums:
    """Minimums that rose while a gang ran: it is not broken (S4) before it has reached them, or lost what it had.

    ``members``: pods of a gang that have not ended. ``is_in_flight``: whether a pod (UID) is on its way to be bound.
    """

    def __init__(
        self,
        members: Callable[[str, str], Sequence[PodRecord]],
        is_in_flight: Callable[[str], bool],
        succeeded: Succeeded,
    ) -> None:
        self._members = members
        self._is_in_flight = is_in_flight
        self._succeeded = succeeded

    def kept(self, record: PodGroupRecord, known: PodGroupRecord | None) -> PodGroupRecord:
        """A PodGroup as it was read, with the minimums that its pods have where those have risen."""
        if known is None or known.uid != record.uid:
            kept = record.kept  # another scheduler, or an earlier one, has seen them rise
        elif known.minimums == record.minimums or known.blocker is not None or not self._has(known, known.minimums):
            kept = known.kept
        else:
            kept = known.minimums
        record = msgspec.structs.replace(record, kept=kept)
        return msgspec.structs.replace(record, kept=None) if kept is not None and self._is_whole(record) else record

    def after(self, group: PodGroupRecord, pod: PodRecord, now: PodRecord | None) -> PodGroupRecord:
        """A PodGroup after a bound member has changed: it may have reached its minimums, or lost what it had before."""
        if group.kept is None:
            return group
        is_lost = now is None or now.deleting or now.pod_group != pod.pod_group
        if self._is_whole(group) or (is_lost and not self._has(group, group.kept)):
            return msgspec.structs.replace(group, kept=None)
        return group

    def as_placed(self, group: PodGroupRecord) -> Minimums | None:
        """The minimums for which its pods were placed, where these are still enough for them and one has risen since.

        A subgroup of which no pod is left is known by the number in all alone.
        """
        pods, parts = 0, Counter[str]()
        for pod in self._members(group.namespace, group.name):
            if pod.node and pod.charged is not None and pod.charged.minimum:
                pods = max(pods, pod.charged.minimum)
                parts[pod.subgroup] = max(parts[pod.subgroup], pod.charged.part)
        rising = (pods < group.minimums.all_pods, *(least < group.tree.least_of(name) for name, least in parts.items()))
        tree = minimum_tree([Part(name, "", least, None) for name, least in parts.items() if least], None)
        if not pods or not any(rising) or isinstance(tree, Contradiction):
            return None
        kept = Minimums(pods, tree)
        return kept if self._has(group, kept) else None

    def _is_whole(self, group: PodGroupRecord) -> bool:
        members = self._members(group.namespace, group.name)
        state = quorum(group, members, self._is_in_flight, self._succeeded.of(group, members))
        return state.bound > 0 and not state.is_below

    def _has(self, group: PodGroupRecord, minimums: Minimums) -> bool:
        """Whether members are enough for these minimums, with those on their way: they may be shown after a rise."""
        members = [pod for pod in self._members(group.namespace, group.name) if not pod.deleting]
        there = Counter(pod.subgroup for pod in members if pod.node or self._is_in_flight(pod.uid))
        return there.total() > 0 and minimums.are_met(there + Counter(self._succeeded.of(group, members)))


#: Whether there is no minimum, the ratio, the place of the first pod in the order of members, the node.
_Turn = tuple[bool, int, int, int]
#: Ratios in parts of 2^64, rounded down: two of them with minimums below 2^31 are as equal or unequal as exact ones.
_PARTS_BITS: Final = 64
#: Below this level leaves are compared with each other directly, past the levels in between, so that one member costs
#: this many looks at most.
_LEVELS: Final = 16


class Surplus:
    """Members beyond the minimum, one after another: the subgroup that has the least of its minimum comes first.

    So KAI has it: the lowest ratio of active members to the minimum, compared again for each one that is placed. Of a
    subgroup that has others below it the ratio is that of its children that are whole to those that it needs, and among
    its children the same is asked again. A subgroup without a minimum comes last.

    ``active``: members by subgroup that are bound or on their way. ``waiting``: the others, in their order. All pods of
    no leaf of the tree are one more leaf at the top, whose number is that of nodes: what the minimum in all asks beyond
    those of subgroups is theirs.
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
