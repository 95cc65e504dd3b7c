"""Victim units: what may go alone, and what goes whole, of bound pods that may be preempted.

Of a gang the pods above its minimums go one by one, in the reverse of the order in which they came: the last of the
surplus first (as in KAI). What is left, the core, goes whole, and not before the surplus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from scheduler.core.groups.quorum import Quorum, Surplus
from scheduler.core.model.facts import copied
from scheduler.core.model.minimum_tree import NEVER
from scheduler.core.model.preemption import Kept, Unit
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.quota import NOTHING, UNITS, Resources
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.nodes.table import Int64s
from scheduler.core.preemption.need import owner_of
from scheduler.core.queues.accounts import Accounts
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use import held, is_fixed, queue_of
from scheduler.core.snapshot.statement import Statement

FEWEST: Final = 16
#: In a row that is empty.
EMPTY: Final = -1


class Columns:
    """Arrays of equal length that grow, and which of their rows are empty."""

    def __init__(self, types: Mapping[str, type[np.signedinteger[Any]]]) -> None:
        self.of: dict[str, Int64s] = {name: np.full(FEWEST, EMPTY, dtype) for name, dtype in types.items()}
        self._length, self._used = FEWEST, 0
        #: Rows that were used and are empty again.
        self._free: list[int] = []

    def put(self, **values: int) -> int:
        """Fill a row; return its number."""
        row = self._free.pop() if self._free else self._next()
        for name, value in values.items():
            self.of[name][row] = value
        return row

    def copy(self) -> Columns:
        """The same rows, to be changed by themselves."""
        return copied(self, of={name: column.copy() for name, column in self.of.items()}, _free=list(self._free))

    def drop(self, row: int) -> None:
        """Empty a row."""
        for column in self.of.values():
            column[row] = EMPTY
        self._free.append(row)

    def _next(self) -> int:
        if self._used == self._length:
            more = max(FEWEST, self._length // 4)
            self.of = {
                name: np.concatenate([column, np.full(more, EMPTY, column.dtype)]) for name, column in self.of.items()
            }
            self._length += more
        self._used += 1
        return self._used - 1


#: A start that is not known comes after all others.
_NEVER: Final = 1 << 62


class Resident(msgspec.Struct, frozen=True, gc=False, eq=False, kw_only=True):
    """A unit with what a search asks of it. There is one for each bound pod, so it is kept small.

    ``owner``: by what evictions are counted. ``started_s``: since when its pod runs, or its group's minimum; 0: not
    known. ``created``, ``uid``: of the group. ``is_core``: it is all that is left of a group; ``chain``: the surplus of
    it, which goes with it.
    """

    pods: tuple[PodRecord, ...]
    leaf: TreeQueue
    amounts: Resources
    priority: int
    is_core: bool
    is_gang: bool
    owner: str
    started_s: int
    created: str
    uid: str
    chain: tuple[Resident, ...] = ()

    @property
    def may_move(self) -> bool:
        """Whether it may be moved to other nodes: its pods are made again, and no surplus would run without it."""
        return not self.chain and all(pod.moves_as for pod in self.pods)

    @property
    def uids(self) -> tuple[str, ...]:
        """UIDs of its pods."""
        return tuple(pod.uid for pod in self.pods)

    @property
    def unit(self) -> Unit:
        """As a plan names it."""
        first = self.pods[0]
        return Unit(
            group=(first.namespace, first.pod_group if self.is_gang else first.uid),
            queue=self.leaf.name,
            priority=self.priority,
            is_core=self.is_core,
            pods=self.uids,
        )


@dataclass(slots=True)
class Residents:
    """All units, and pods that can't go for any need. ``kept``: why, and of which queue."""

    units: list[Resident] = field(default_factory=list)
    kept: list[tuple[Kept, TreeQueue, PodRecord, Resources]] = field(default_factory=list)


class UnitSource(Protocol):
    """What units are read from: a trial, without the units that it has."""

    @property
    def statement(self) -> Statement:
        """Nodes and pods as they stand."""
        ...

    @property
    def accounts(self) -> Accounts:
        """What queues hold."""
        ...

    @property
    def pods(self) -> Pods:
        """All pods."""
        ...

    @property
    def pod_groups(self) -> Mapping[tuple[str, str], PodGroupRecord]:
        """By namespace and name."""
        ...

    @property
    def quorum(self) -> Callable[[PodGroupRecord], Quorum]:
        """How many of a group have to run."""
        ...

    @property
    def taken(self) -> Set[str]:
        """UIDs of pods that other nominations take."""
        ...

    @property
    def leaving(self) -> Set[str]:
        """UIDs of pods that are terminating and that may be counted on."""
        ...


def residents(trial: UnitSource) -> Residents:
    """Find all units. Pods that count in no queue (reservations, scaling pods, other schedulers') are nobody's."""
    reader, gangs = Reader(trial), dict[tuple[str, str], list[PodRecord]]()
    for pod in trial.pods.records.values():
        if not pod.node or not pod.queue:
            continue
        key = (pod.namespace, pod.pod_group)
        if pod.pod_group and key in trial.pod_groups:
            gangs.setdefault(key, []).append(pod)
        else:
            reader.read([pod], None)
    for key, pods in gangs.items():
        reader.read(pods, trial.pod_groups[key])
    return reader.found


@dataclass(slots=True)
class Reader:
    """Reads groups one by one."""

    trial: UnitSource
    found: Residents = field(default_factory=Residents)
    #: Equal amounts are kept once.
    known: dict[Resources, Resources] = field(default_factory=dict)

    def read(self, pods: Sequence[PodRecord], group: PodGroupRecord | None) -> None:
        """Make the units of one group, or of a pod alone.

        Where members count in several queues, or only some can be preempted, each goes alone: what one of them counts
        for as it was placed keeps no other one.
        """
        if len({(queue_of(pod, group), is_fixed(pod, group)) for pod in pods}) > 1:
            for pod in pods:
                self._read([pod], group, is_gang=False)
        else:
            self._read(pods, group, is_gang=group is not None)

    def _read(self, pods: Sequence[PodRecord], group: PodGroupRecord | None, *, is_gang: bool) -> None:
        leaf = self.trial.accounts.tree.leaf(queue_of(pods[0], group))
        if not isinstance(leaf, TreeQueue):
            return
        # Only asked whether they have a pod: thousands of pods may be taken, and groups are read one by one.
        taken, leaving = self.trial.taken, self.trial.leaving
        staying = [pod for pod in pods if not (pod.deleting or pod.uid in taken or pod.uid in leaving)]
        self._keep(Kept.BUSY, leaf, (pod for pod in pods if pod.deleting or pod.uid in taken))
        if group is None or not is_gang:
            self._alone(staying, group, leaf)
        elif staying:
            self._gang(staying, group, leaf)

    def _keep(self, why: Kept, leaf: TreeQueue, pods: Iterable[PodRecord]) -> None:
        self.found.kept += ((why, leaf, pod, self._amounts(pod)) for pod in pods)

    def _amounts(self, pod: PodRecord) -> Resources:
        found = amounts(self.trial, pod)
        return self.known.setdefault(found, found)

    def _alone(self, pods: Sequence[PodRecord], group: PodGroupRecord | None, leaf: TreeQueue) -> None:
        for pod in pods:
            if is_fixed(pod, group):
                self._keep(Kept.NOT_PREEMPTIBLE, leaf, [pod])
                continue
            self.found.units.append(
                Resident(
                    pods=(pod,),
                    leaf=leaf,
                    amounts=self._amounts(pod),
                    priority=pod.priority,
                    is_core=True,
                    is_gang=False,
                    owner=owner_of(pod, group),
                    started_s=pod.started_s,
                    created=pod.created,
                    uid=pod.uid,
                )
            )

    def _gang(self, pods: list[PodRecord], group: PodGroupRecord, leaf: TreeQueue) -> None:
        state = self.trial.quorum(group)
        if state.is_starting and not state.is_met:
            self._keep(Kept.BUSY, leaf, pods)
            return
        if is_fixed(pods[0], group):  # and so are all
            self._keep(Kept.NOT_PREEMPTIBLE, leaf, pods)
            return
        core, surplus = split(pods, group, Counter(state.succeeded))
        started_s, priority = _since(pods, state), max(pod.priority for pod in pods)

        def made(members: Sequence[PodRecord], *, is_core: bool, chain: tuple[Resident, ...] = ()) -> Resident:
            claim = _sum(map(self._amounts, members))
            return Resident(
                pods=tuple(members),
                leaf=leaf,
                amounts=self.known.setdefault(claim, claim),
                priority=priority,
                is_core=is_core,
                is_gang=True,
                owner=group.uid,
                started_s=started_s,
                created=group.created,
                uid=group.uid,
                chain=chain,
            )

        going = tuple(made([pod], is_core=False) for pod in surplus)
        self.found.units += going
        if core:
            self.found.units.append(made(core, is_core=True, chain=going))


def amounts(trial: UnitSource, pod: PodRecord) -> Resources:
    """What a bound pod counts for in its queue."""
    at = trial.statement.position_of.get(pod.node)
    return held(pod, None if at is None else trial.statement.nodes[at])


def split(
    pods: Sequence[PodRecord], group: PodGroupRecord, done: Counter[str]
) -> tuple[list[PodRecord], list[PodRecord]]:
    """The core of a gang in the order of its members, and its surplus in the order in which it goes.

    A subgroup that has more than its minimum has surplus also while another one lacks members, as in KAI. Where members
    of no subgroup are lacking, all is core.
    """
    members, tree = order_members(pods), group.tree
    there = Counter(pod.subgroup for pod in members) + done
    costs = tree.costs(tree.lacking(there))
    lacking = costs[0]
    if lacking >= NEVER or there.total() + lacking < group.minimum:
        return members, []
    needed = {tree.names[leaf]: tree.pods[leaf] - done[tree.names[leaf]] for leaf in tree.chosen(costs)}
    core, rest = list[PodRecord](), list[PodRecord]()
    for pod in members:
        is_needed = needed.get(pod.subgroup, 0) > 0
        needed[pod.subgroup] = needed.get(pod.subgroup, 0) - is_needed
        (core if is_needed else rest).append(pod)
    came = list(_as_they_came(group, Counter(pod.subgroup for pod in core) + done, rest))
    more = max(0, group.minimum - lacking - done.total() - len(core))
    return [*core, *came[:more]], came[more:][::-1]


def _as_they_came(group: PodGroupRecord, active: Counter[str], rest: Sequence[PodRecord]) -> Iterator[PodRecord]:
    """Members beyond the minimum in the order in which they are placed."""
    surplus = Surplus(group, active, rest)
    while (pod := surplus.take()) is not None:
        yield pod
        surplus.placed()


def _since(pods: Sequence[PodRecord], state: Quorum) -> int:
    """Since when the minimum of a gang runs; 0: not known."""
    starts = sorted(pod.started_s or _NEVER for pod in pods)
    at = starts[min(len(starts), max(1, state.minimum - state.done)) - 1]
    return 0 if at == _NEVER else at


def _sum(amounts: Iterable[Resources]) -> Resources:
    total = NOTHING
    for each in amounts:
        total = total.plus(each)
    return total


#: Each unit has run for so long, as far as its loss goes.
LEAST_S: Final = 1


class Cost(NamedTuple):
    """What a set of units costs: the highest priority in it, the work that is lost, pods, and UIDs. Less is better.

    ``loss``: nano of a GPU times seconds.
    """

    priority: int
    loss: int
    pods: int
    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pricing:
    """``total``: what queues divide. ``wall_s``: now.

    A pod's loss is its weight times its run time, a second at least: of two that began just now the smaller costs less.
    """

    total: Resources
    wall_s: int

    def loss(self, victim: Resident) -> int:
        """What is lost with one unit. A pod whose start nobody knows counts as one that has just begun."""
        return self.weight_nano(victim.amounts) * max(LEAST_S, self.wall_s - (victim.started_s or self.wall_s))

    def weight_nano(self, amounts: Resources) -> int:
        """The dominant claim, the largest part that it has of any dimension, as nano of a GPU; else of the cluster."""
        gpus = self.total.gpu_nano or UNITS[-1]
        return max(amount * gpus // has if has > 0 else 0 for amount, has in zip(amounts, self.total, strict=True))

    def cost(self, victims: Iterable[Resident]) -> Cost:
        """What a set costs."""
        victims = list(victims)
        uids = sorted(pod.uid for victim in victims for pod in victim.pods)
        priority = max((victim.priority for victim in victims), default=-(1 << 63))
        return Cost(priority, sum(map(self.loss, victims)), len(uids), tuple(uids))
