"""Upper bounds on how many pods of a class, or of a gang, nodes and domains take.

Never too small: nodes and domains without room by these numbers are out for sure, and placing has the last word on
others. Domains are counted class by class, in sums; KAI takes the largest pod of a gang for all of them, and so leaves
out domains that would do. A claim that several pods use, and that is not bound or allocated yet, mostly comes to serve
one node: a node is out if it has no room for all that share the claim.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.decide.gang_search import PlaceBound
from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_fit import Pool, fitting, free_in_slots, pools_of
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import DomainRoom
from scheduler.core.nodes.table import CPU, GPUS, IDLE, LARGEST_CARD, LEAVING, LEFT_MILLI, Bools, Int64s, Table
from scheduler.core.scheduling_queue.unschedulable import depends_on_all
from scheduler.core.snapshot.node_count import NodeMask
from scheduler.core.topology.topologies import ROOT, Domain, Slots

#: More than any node takes.
_MOST = 1 << 31
_EVERYWHERE = slice(None)


def pod_slots(placer: Placer, cls: PodClass, mask: NodeMask, *, with_idle: bool = False) -> Int64s:
    """The number for each position: of all requests of the class that will do, in sum.

    ``with_idle``: GPUs that idle reservations hold count as free, for pods that ask whole ones.
    """
    found = np.zeros(len(placer.statement.nodes), np.int64)
    for way in placer.ways(cls):
        found += _of_way(placer, way, with_idle=with_idle)
    if cls.excluded:
        without = placer.all_but(cls.excluded)
        found[~without if without is not None else []] = 0
    if mask is not None:
        found[~mask] = 0
    return found


def _of_way(placer: Placer, cls: PodClass, *, with_idle: bool) -> Int64s:
    statement, ranking = placer.statement, placer.ranking(cls)
    may_open = cls.rules is not None and cls.rules.may_open
    judged = statement.admitting(cls) if may_open else ranking.eligible
    table, found = statement.table, np.where((judged == OK) & ranking.known, _MOST, 0)
    amounts = dict(statement.amounts(cls.demand))
    for row, amount in amounts.items():
        free = table.free[row]
        if row == GPUS and with_idle:
            free = free + table.extra[IDLE] + table.extra[LEAVING]
        found = np.minimum(found, np.maximum(free, 0) // amount)
    for pool in pools_of(cls.request.shared, statement):
        for ask in dict.fromkeys(pool.asks):
            found = np.minimum(found, _shares(table, pool, ask, amounts) // pool.asks.count(ask))
        found = np.where(pool.is_there(table), found, 0)
    return found


def _shares(table: Table, pool: Pool, ask: SharedAsk, amounts: dict[int, int]) -> Int64s:
    """How many shares of this size fit on devices that are shared, and on those that could be."""
    free = free_in_slots(table, _EVERYWHERE, pool.rows)
    fits = fitting(ask, table, _EVERYWHERE, free)
    if isinstance(ask, FractionAsk):
        in_use, each = free // ask.nano, np.full(free.shape[1], NANO_PER_DEVICE // ask.nano)
    else:
        in_use, each = table.share_mib // ask.mem_mib, np.maximum(1, table.extra[LARGEST_CARD] // ask.mem_mib)
    spare = np.maximum(pool.spare(table, _EVERYWHERE, dict.fromkeys(amounts, 0)), 0)
    found: Int64s = np.where(fits, in_use, 0).sum(axis=0) + spare * each
    return found


#: Classes of which bounds are counted; those that ask most come first.
_CLASSES_COUNTED: Final = 16
_BEST: Final = 3


def size(pod: PodRecord) -> tuple[int, ...]:
    """Members that ask most come first."""
    demand, shares = pod.cls.demand, len(pod.cls.request.shared)
    return -demand.gpus, -shares, -demand.cpu_milli, -demand.mem_mib


class DomainRooms:
    """How many of some pods the domains of a tree take, class by class and in sums."""

    __slots__ = ("_alike", "_bound", "_counts", "_instead", "_measure", "_needed", "_per_class", "_placer", "_sums")

    def __init__(
        self,
        placer: Placer,
        bound: PlaceBound,
        needed: Sequence[PodRecord],
        mask: NodeMask,
        *,
        with_idle: bool,
        instead: Sequence[PodRecord] = (),
    ) -> None:
        """``instead``: where others may start in the place of these, all of them."""
        self._placer, self._bound, self._needed = placer, bound, needed
        counts = Counter(pod.cls for pod in sorted(needed, key=size))
        self._counts = dict(list(counts.items())[:_CLASSES_COUNTED])
        per_node = {cls: pod_slots(placer, cls, mask, with_idle=with_idle) for cls in self._counts}
        self._per_class = {cls: Slots(bound.tree, slots) for cls, slots in per_node.items()}
        self._alike = [*per_node.values()]
        others = dict.fromkeys(pod.cls for pod in instead)
        self._instead = self._of_any(others, mask, with_idle=with_idle) if others else None
        is_one = len(counts) == 1
        self._sums = [] if is_one else self._of_sums(per_node, with_idle=with_idle)
        self._measure = self._per_class[next(iter(counts))] if is_one else self._tightness(per_node)

    def _of_any(self, classes: Iterable[PodClass], mask: NodeMask, *, with_idle: bool) -> Slots:
        """How many pods of any of these classes the domains take; of too many classes none is counted."""
        found, placer = np.ones(len(self._bound.tree.order), np.int64), self._placer
        for number, cls in enumerate(classes):
            if number >= _CLASSES_COUNTED:
                return Slots(self._bound.tree, np.ones_like(found))
            slots = pod_slots(placer, cls, mask, with_idle=with_idle)
            self._alike.append(slots)
            found = slots if not number else found + slots
        return Slots(self._bound.tree, found)

    def _of_sums(self, per_node: Mapping[PodClass, Int64s], *, with_idle: bool) -> list[tuple[Slots, int]]:
        """What the nodes have free that any of them may be on, and what all of them ask: CPU, memory and the like."""
        if len(self._counts) >= _CLASSES_COUNTED or with_idle:
            return []
        statement = self._placer.statement
        usable = np.logical_or.reduce([slots > 0 for slots in per_node.values()])
        asked: Counter[int] = Counter()
        for cls, count in self._counts.items():
            for row, amount in statement.amounts(cls.demand):
                asked[row] += amount * count
        free = statement.table.free
        is_plain = all(not (cls.alternatives or cls.backed) for cls in self._counts)
        return [
            (Slots(self._bound.tree, np.where(usable, np.maximum(free[row], 0), 0)), amount)
            for row, amount in asked.items()
            if is_plain
        ]

    def _tightness(self, per_node: Mapping[PodClass, Int64s]) -> Slots:
        """How large a domain counts for unequal pods: by GPUs that are free, or by CPU where none asks them."""
        table = self._placer.statement.table
        usable = np.logical_or.reduce([slots > 0 for slots in per_node.values()])
        asks_gpus = any(cls.demand.gpus or cls.request.is_shared for cls in self._counts)
        free = table.extra[LEFT_MILLI] if asks_gpus else table.free[CPU]
        return Slots(self._bound.tree, np.where(usable, np.maximum(free, 0), 0))

    def fitting(self, level: int) -> Iterator[Domain]:
        """Domains of a level that may take them, the tightest first; where others may do, those that take one."""
        starts, ends = self._bound.tree.levels[level]
        if self._instead is not None:
            fits = self._instead.of_level(level) > 0
        else:
            fits = np.ones(len(starts), np.bool_)
            for cls, count in self._counts.items():
                fits &= self._per_class[cls].of_level(level) >= count
            for sums, amount in self._sums:
                fits &= sums.of_level(level) >= amount
        room = self._measure.of_level(level)
        found = np.flatnonzero(fits)
        tight = (Domain(level, int(starts[at]), int(ends[at])) for at in found[np.argsort(room[found], kind="stable")])
        return self._beside_running(tight, level)

    def _beside_running(self, found: Iterator[Domain], level: int) -> Iterator[Domain]:
        """Where some pods run already: only the domains that hold some of them, those with most of them first."""
        bound = self._bound
        if level == ROOT or not bound.running or (bound.required and not bound.held_by(bound.required)):
            return found
        fitting = {*found}
        return (domain for domain in bound.held_by(level) if domain in fitting)

    def alike(self, domain: Domain) -> Hashable:
        """Equal for domains that take the same pods: what their nodes have, in any order."""
        if any(cls.rules is not None or depends_on_all(cls) for cls in self._counts):
            return domain
        table, order = self._placer.statement.table, self._bound.tree.order[domain.start : domain.end]
        columns = np.concatenate(
            [
                table.free[:, order],
                np.sort(table.share_nano[:, order], axis=0),
                np.sort(table.share_mib[:, order], axis=0),
                table.extra[:, order],
                *(slots[order][None] for slots in self._alike),
            ]
        )
        return domain.level, columns[:, np.lexsort(columns)].tobytes()

    def best(self) -> tuple[DomainRoom, ...]:
        """The domains of the required level with the most room for the pods that find the least."""
        level, least = self._bound.required, None
        for cls, count in self._counts.items():
            part = self._per_class[cls].of_level(level) * len(self._needed) // count
            least = part if least is None else np.minimum(least, part)
        if least is None:
            return ()
        domains = self._bound.tree.domains(level)
        order = np.argsort(-least, kind="stable")[:_BEST].tolist()
        return tuple(
            DomainRoom(self._bound.tree.name(domains[at]), min(int(least[at]), len(self._needed))) for at in order
        )


#: Classes of which the nodes' room is counted. Of others only the sums are, or nothing.
_CLASSES_OF_SHARERS: Final = 64


@dataclass(slots=True)
class _Sharers:
    """Classes of members that share claims.

    ``for_most``: nodes that may take as many members as may start. ``for_least``: those that may take as many as have
    to, if all members without these claims start. ``used``: positions where members were placed.
    """

    classes: Sequence[PodClass]
    #: How many members there are of them.
    count: int
    for_most: Bools
    for_least: Bools
    used: set[int] = field(default_factory=set)
    nodes: Bools = field(init=False)

    def __post_init__(self) -> None:
        self._choose()

    def _choose(self) -> None:
        self.nodes = self.for_most if self.for_most.any() else self.for_least

    def take_out(self) -> bool:
        """Take out the nodes where members were placed, or those for most where none was; return whether any was."""
        has_any = bool(self.used) or bool(self.for_most.any())
        if self.used:
            self.for_most[[*self.used]] = self.for_least[[*self.used]] = False
        else:
            self.for_most[:] = False
        self.used.clear()
        self._choose()
        return has_any


class SharedClaims:
    """One gang's start. ``ready``: members that may be placed; ``needed``: how many of them have to start."""

    __slots__ = ("_count", "_of_class", "_placer", "_sharers", "counted")

    def __init__(self, ready: Sequence[PodRecord], needed: int, placer: Placer) -> None:
        self._placer, self._count = placer, len(ready)
        #: How many times the room of all nodes was counted.
        self.counted = 0
        users = Counter(pod.cls for pod in ready)
        self._sharers = [*self._joined(users, needed)]
        self._of_class = {cls: sharers for sharers in self._sharers for cls in sharers.classes}

    def _joined(self, users: Mapping[PodClass, int], needed: int) -> Iterator[_Sharers]:
        left = _CLASSES_OF_SHARERS
        for classes in joined(users):
            together = {cls: users[cls] for cls in classes}
            count = sum(together.values())
            if not left:
                return
            if count == 1:  # it shares its claims with pods that are no members
                continue
            slots = {cls: self._slots(cls) for cls in classes[:left]}
            left -= len(slots)
            self.counted += len(slots) + 1
            most, least = min(count, needed), max(0, needed - (self._count - count))
            for_least = self._taking(least, together, slots, least_each=0)
            if for_least.any():  # else its claims may be those that serve several nodes
                yield _Sharers(classes, count, self._taking(most, together, slots, least_each=1), for_least)

    def _slots(self, cls: PodClass) -> Int64s:
        return pod_slots(self._placer, cls, None, with_idle=True)

    def _taking(
        self, wanted: int, together: Mapping[PodClass, int], slots: Mapping[PodClass, Int64s], *, least_each: int
    ) -> Bools:
        """The nodes that may take this many of some members, and of each class this many."""
        table, count = self._placer.statement.table, sum(together.values())
        found: Bools = np.ones(len(self._placer.statement.nodes), np.bool_)
        for cls, room in slots.items():
            found &= room >= max(least_each, wanted - (count - together[cls]))
        for row, asked in self._asked(together).items():
            free = table.free[row]
            if row == GPUS:
                free = free + table.extra[IDLE] + table.extra[LEAVING]
            found &= free >= _least(asked, count, wanted)
        return found

    def _asked(self, together: Mapping[PodClass, int]) -> dict[int, list[tuple[int, int]]]:
        """What members ask of each row of the table, and how many of them ask it: by the request that asks least."""
        found = defaultdict[int, list[tuple[int, int]]](list)
        for cls, count in together.items():
            first, *others = [dict(self._placer.statement.amounts(way.demand)) for way in self._placer.ways(cls)]
            for row, amount in first.items():
                least = min((other.get(row, 0) for other in others), default=amount)
                found[row].append((min(amount, least), count))
        return found

    # --- questions ---------------------------------------------------------------------------------------------------
    @property
    def has_any(self) -> bool:
        """Whether members share claims, and there are nodes that may take them together."""
        return bool(self._sharers)

    def nodes_for(self, cls: PodClass) -> NodeMask:
        """The nodes for members of a class."""
        sharers = self._of_class.get(cls)
        return None if sharers is None else sharers.nodes

    @property
    def nodes_for_all(self) -> NodeMask:
        """The nodes for all members, if all of them share claims with each other; else None."""
        is_whole = len(self._sharers) == 1 and self._sharers[0].count == self._count
        return self._sharers[0].nodes if is_whole else None

    # --- changes -----------------------------------------------------------------------------------------------------
    def note(self, cls: PodClass, node: str) -> None:
        """Note that a member of a class was placed on a node."""
        if (sharers := self._of_class.get(cls)) is not None:
            sharers.used.add(self._placer.statement.position_of[node])

    def take_out(self) -> bool:
        """Take out nodes that were tried in vain, and return whether that leaves others to try."""
        has_any = [sharers.take_out() for sharers in self._sharers]
        return any(has_any) and all(sharers.nodes.any() for sharers in self._sharers)


def joined(classes: Iterable[PodClass]) -> list[list[PodClass]]:
    """Classes that share claims of one node, with each other or with a third, in their order."""
    using = defaultdict[Hashable, list[PodClass]](list)
    for cls in classes:
        for claim in _shared(cls):
            using[claim].append(cls)
    found, seen = [], set[PodClass]()
    for first in [each[0] for each in using.values()]:
        if first in seen:
            continue
        seen.add(first)
        part = [first]
        for cls in part:  # grows
            for claim in _shared(cls):
                others = [each for each in dict.fromkeys(using[claim]) if each not in seen]
                using[claim] = []
                seen.update(others)
                part += others
        found.append(part)
    return found


def _shared(cls: PodClass) -> Iterator[Hashable]:
    """Claims that are not bound or allocated yet, that others use as well, and that may come to serve one node only."""
    yield from (("volume", need.claim) for need in cls.unbound if need.claim and not need.serves_many_nodes)
    yield from (("devices", need.claim) for need in cls.devices if need.claim)


def _least(asked: Iterable[tuple[int, int]], count: int, wanted: int) -> int:
    """The least that this many of the members ask together, where those that are not listed ask nothing."""
    listed = sorted(asked)
    left, total = wanted - (count - sum(number for _, number in listed)), 0
    for amount, number in listed:
        if left <= 0:
            break
        total += amount * min(number, left)
        left -= number
    return total
