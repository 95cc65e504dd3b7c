"""How many pods of one class each node holds, now and once units are gone, and about what the next pod costs there.

A node holds no more than what is free of each thing that is asked allows: a bound, exact in the simple case. Whole GPUs
that idle reservations hold, or that are on their way back, count as free. What is left out (pins, modes, volumes,
others' anti-affinity) makes the bound too high, never too low. What a node gains is the sum of what its pods hold. With
shared devices it is not: a device comes back as a whole when its last tenant goes, and takes as many parts as fit.

Counts are kept while a search tries one change after the other: only nodes that the statement has touched since are
counted again. Estimates say where to look first, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.table import CPU, GPUS, IDLE, LEAVING, Bools, Int64s, Selection
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import ResidentTable, SharedDevice, Tenants
from scheduler.core.preemption.victim_units import EMPTY, LEAST_S, Pricing
from scheduler.core.snapshot.node_count import all_but
from scheduler.core.snapshot.statement import Statement

#: As many as nobody needs.
MANY: Final = 1 << 40
_ALL: Final = slice(None)


def slots(statement: Statement, cls: PodClass) -> Int64s:
    """By position, the most pods of a class, by the best of its requests."""
    found = np.zeros(len(statement.nodes), np.int64)
    for way in cls.ways():
        held = of_way(statement, way)
        held[~may_be(statement, way)] = 0
        np.maximum(found, held, out=found)
    return found


def may_be(statement: Statement, way: PodClass) -> Bools:
    """Where a class may be at all, without regard to free room and to others' anti-affinity: they may go."""
    there: Bools = statement.eligible(way.constraints) == OK
    if not all(name in statement.table.resources for name, _ in way.demand.extended):
        return np.zeros_like(there)
    mask = all_but(way.excluded, statement.position_of)
    return there if mask is None else there & mask


def of_way(statement: Statement, way: PodClass, at: Selection = _ALL) -> Int64s:
    """How many pods of one request these positions hold, if they may be there."""
    asks = way.request.shared
    found = np.full(len(statement.table.free[GPUS, at]), MANY, np.int64)
    for row, amount in asked(statement, way):
        np.minimum(found, _free(statement, row, at) // amount, out=found)
    if asks:
        np.minimum(found, _of_shares(statement, asks, at), out=found)
    return np.maximum(found, 0, out=found)


def asked(statement: Statement, way: PodClass) -> list[tuple[int, int]]:
    """Rows and amounts; of resources that no node has none."""
    if not all(name in statement.table.resources for name, _ in way.demand.extended):
        return []
    return statement.amounts(way.demand)


def _free(statement: Statement, row: int, at: Selection) -> Int64s:
    table = statement.table
    free: Int64s = table.free[row, at]
    if row == GPUS:
        free = free + table.extra[IDLE, at] + table.extra[LEAVING, at]
    return free


def _of_shares(statement: Statement, asks: tuple[SharedAsk, ...], at: Selection) -> Int64s | int:
    """By the parts of cards: as many of the smallest as there are, by how many parts one pod asks."""
    smallest = min(map(least_nano, asks))
    if smallest <= 0:
        return MANY
    table = statement.table
    parts = np.maximum(table.free[GPUS, at], 0) * (NANO_PER_DEVICE // smallest)
    for free in table.share_nano[:, at]:
        parts = parts + np.maximum(free, 0) // smallest
    found: Int64s = parts // len(asks)
    return found


def least_nano(ask: SharedAsk) -> int:
    """The least that it takes of a card; 0 where that says nothing: of slices, and memory of cards of any size."""
    return ask.nano if isinstance(ask, FractionAsk) and not ask.profile else 0


_EVERYWHERE: Final = slice(None)
#: More pods than that on one node are not told apart, so that sums stay small.
AS_MANY: Final = 1 << 20
#: Beyond this part of the nodes all are counted: that is one pass over columns.
_MOST_PART: Final = 4
#: Classes that are kept: one takes 9 bytes for each node.
_MOST_CLASSES: Final = 64


@dataclass(slots=True)
class _Kept:
    """Of one class: its requests, each with where it may be at all, and what nodes hold, by position.

    ``seen``: how many positions the statement had touched by then. ``total``: the sum over all nodes; None: not known.
    """

    ways: list[tuple[PodClass, Bools]]
    held: Int64s
    seen: int
    total: int | None = None


class KeptSlots:
    """Of the classes that were asked for last, on one statement."""

    __slots__ = ("_kept", "_statement")

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        #: In the order in which they were asked for.
        self._kept: dict[PodClass, _Kept] = {}

    def of(self, cls: PodClass) -> Int64s:
        """By position, the most pods of a class, by the best of its requests. Not to be changed, nor to be kept."""
        return self._now(cls).held

    def besides(self, cls: PodClass, off: Iterable[int]) -> int:
        """What all nodes but those at these positions hold, each ``AS_MANY`` at most."""
        kept = self._now(cls)
        if kept.total is None:
            kept.total = int(np.minimum(kept.held, AS_MANY).sum())
        return kept.total - sum(min(int(kept.held[position]), AS_MANY) for position in off)

    def _now(self, cls: PodClass) -> _Kept:
        kept = self._kept.pop(cls, None)
        if kept is None:
            if len(self._kept) >= _MOST_CLASSES:
                del self._kept[next(iter(self._kept))]
            ways = [(way, may_be(self._statement, way)) for way in cls.ways()]
            kept = _Kept(ways, self._counted(ways, _EVERYWHERE), len(self._statement.touched))
        else:
            self._renew(kept)
        self._kept[cls] = kept
        return kept

    def _renew(self, kept: _Kept) -> None:
        """Count the nodes again that were touched since."""
        touched = self._statement.touched
        if kept.seen == len(touched):
            return
        positions = set(touched[kept.seen :])
        if _MOST_PART * len(positions) > len(kept.held):
            kept.held[:] = self._counted(kept.ways, _EVERYWHERE)
        else:
            at = np.fromiter(positions, np.int64, len(positions))
            kept.held[at] = self._counted(kept.ways, at)
        kept.seen, kept.total = len(touched), None

    def _counted(self, ways: Iterable[tuple[PodClass, Bools]], at: Selection) -> Int64s:
        counted = [(of_way(self._statement, way, at), there[at]) for way, there in ways]
        for held, there in counted:
            held[~there] = 0
        return counted[0][0] if len(counted) == 1 else np.maximum.reduce([held for held, _ in counted])


@dataclass(slots=True)
class Counting:
    """Of one class with one request. ``here``: what each node holds as the statement stands."""

    trial: Trial
    table: ResidentTable
    way: PodClass
    tenants: Tenants
    where: Bools = field(init=False)
    here: Int64s = field(init=False)
    #: Of each pod of a unit: its unit, where it is, and what it holds of each row that is asked.
    unit: Int64s = field(init=False)
    position: Int64s = field(init=False)
    held: Int64s = field(init=False)
    #: Parts of a card that one pod asks, the smallest of them, and how many of those a card holds; 0: nothing is said.
    _parts: int = field(init=False)
    _smallest: int = field(init=False)
    _on_card: int = field(init=False)
    _asked: list[tuple[int, int]] = field(init=False)
    _rows: list[int] = field(init=False)
    #: Where whole GPUs are among what is asked; None: they are not.
    _whole: int | None = field(init=False)
    _known: dict[tuple[int, frozenset[int]], int] = field(default_factory=dict)
    _free: Int64s = field(init=False)
    _frees: dict[int, list[int]] = field(default_factory=dict)
    _holds: dict[int, dict[int, list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        statement, table = self.trial.statement, self.table
        self._asked = asked(statement, self.way)
        rows = [row for row, _ in self._asked]
        shared = self.way.request.shared
        self._whole = rows.index(GPUS) if GPUS in rows else None
        # The last one: GPUs out of which parts come. Those of idle reservations don't count there, as their parts do.
        rows.append(GPUS)
        self._parts, self._smallest = len(shared), min(map(least_nano, shared), default=0)
        self._on_card = NANO_PER_DEVICE // self._smallest if self._smallest else 0
        self.where = may_be(statement, self.way)
        self.here = np.where(self.where, of_way(statement, self.way), 0)
        self.unit = table.pods.of["unit"]
        self.position = table.positions(self.trial)
        self.held = table.demands(self.trial, rows)
        self._rows = rows
        self._free = np.concatenate([free_now(self.trial, rows[:-1]), statement.table.free[GPUS][None]])

    # --- all nodes at once -------------------------------------------------------------------------------------------
    def without(self, gone: Bools) -> Int64s:
        """What each node holds without the units of these rows."""
        if not len(self.where):
            return self.here  # pods may be bound to nodes that are gone
        mine = gone[self.unit] & (self.unit != EMPTY) & (self.position >= 0)
        plain = mine & ~self.tenants.odd[self.position]
        free = self._free.copy()
        for at in range(len(self._rows)):
            np.add.at(free[at], self.position[plain], self.held[at, plain])
        left, back = self.tenants.without(gone)
        where = self.tenants.position
        parts = np.zeros(len(self.where), np.int64)
        if self._smallest:
            np.add.at(parts, where[self.tenants.is_open], left[self.tenants.is_open] // self._smallest)
        if self._whole is not None:
            np.add.at(free[self._whole], where[back], 1)
        found = np.where(self.where & ~self.tenants.odd, self._of(free, parts), 0)
        odd = np.unique(self.position[mine & self.tenants.odd[self.position] & self.where[self.position]]).tolist()
        for position in odd:
            there = mine & (self.position == position)
            found[position] = self.count(position, frozenset(self.unit[there].tolist()))
        untouched = self.tenants.odd & self.where
        untouched[odd] = False
        found[untouched] = self.here[untouched]
        return found

    def _of(self, free: Int64s, parts: Int64s) -> Int64s:
        """What nodes hold that have so much free; ``parts``: of devices that are shared."""
        found = np.full(free.shape[1], MANY, np.int64)
        for has, (_, amount) in zip(free, self._asked, strict=False):
            np.minimum(found, has // amount, out=found)
        if self._on_card:
            whole = np.maximum(free[-1], 0)
            np.minimum(found, (whole * self._on_card + parts) // self._parts, out=found)
        return np.maximum(found, 0, out=found)

    def prefix(self, sequence: Int64s, needed: int) -> int | None:
        """How many of the first units are enough; None if all of them are not."""
        gained = np.zeros(len(sequence), np.int64)
        rank = np.full(len(self.table.units.of["leaf"]) + 1, EMPTY, np.int64)  # the last one: of no unit
        rank[sequence] = np.arange(len(sequence))
        mine = (self.unit != EMPTY) & (self.position >= 0)
        mine &= (rank[self.unit] != EMPTY) & self.where[self.position]
        odd = mine & self.tenants.odd[self.position]
        self._gain(gained, self._events(rank, np.flatnonzero(mine & ~odd)))
        self._gain_odd(gained, rank, np.flatnonzero(odd))
        total = int(self.here.sum()) + np.cumsum(gained)
        enough = int(np.searchsorted(total, needed))
        return enough + 1 if enough < len(total) else None

    def _events(self, rank: Int64s, pods: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """What comes free where and when, as columns: of each row, and of parts of shared devices."""
        at, when = self.position[pods], rank[self.unit[pods]]
        free = np.concatenate([self.held[:, pods], np.zeros((1, len(pods)), np.int64)])
        of_devices = [(-1, self._parts_free(rank))] if self._smallest else []
        of_devices += [(self._whole, self._come_back(rank))] if self._whole is not None else []
        for at_row, (where, turn, gains) in of_devices:
            here = self.where[where]
            more = np.zeros((len(free), int(here.sum())), np.int64)
            more[at_row] = gains[here]
            at, when = np.concatenate([at, where[here]]), np.concatenate([when, turn[here]])
            free = np.concatenate([free, more], axis=1)
        return at, when, free

    def _come_back(self, rank: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Devices that come back as a whole: when the last tenant goes, if all of them do."""
        of, turns = self.tenants.of_device, rank[self.tenants.row]
        last = np.full(len(self.tenants.devices), EMPTY, np.int64)
        np.maximum.at(last, of, turns)
        never = np.zeros(len(last), np.bool_)
        never[of[turns == EMPTY]] = True
        goes = (last != EMPTY) & ~never
        return self.tenants.position[goes], last[goes], np.ones(int(goes.sum()), np.int64)

    def _parts_free(self, rank: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Parts that come free of devices that are shared, tenant by tenant."""
        turns = rank[self.tenants.row]
        goes = np.flatnonzero((turns != EMPTY) & self.tenants.is_open[self.tenants.of_device])
        goes = goes[np.lexsort((turns[goes], self.tenants.of_device[goes]))]
        of = self.tenants.of_device[goes]
        sums = _within(self.tenants.nano[goes][None], of)[0]
        base = self.tenants.free_nano[of]
        before = sums - self.tenants.nano[goes]
        gains = (base + sums) // self._smallest - (base + before) // self._smallest
        return self.tenants.position[of], turns[goes], gains

    def _gain(self, gained: Int64s, events: tuple[Int64s, Int64s, Int64s]) -> None:
        """When each node gains its next slots, by one pass over what comes free there in its order."""
        at, when, free = events
        if not len(at):
            return
        order = np.lexsort((when, at))
        at, when, free = at[order], when[order], free[:, order]
        sums = _within(free, at)
        parts = self._parts_now()[at] + sums[-1]
        there = self._of(self._free[:, at] + sums[:-1], parts)
        gain = there.copy()
        gain[1:] -= there[:-1]
        firsts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        gain[firsts] = there[firsts] - self.here[at[firsts]]
        np.add.at(gained, when, gain)

    def _parts_now(self) -> Int64s:
        parts = np.zeros(len(self.where), np.int64)
        if self._smallest:
            of = self.tenants
            np.add.at(parts, of.position[of.is_open], of.free_nano[of.is_open] // self._smallest)
        return parts

    def _gain_odd(self, gained: Int64s, rank: Int64s, pods: Int64s) -> None:
        """The same where the statement counts, node by node."""
        for position in np.unique(self.position[pods]).tolist():
            there = pods[self.position[pods] == position]
            gone, known = set[int](), int(self.here[position])
            for when in np.unique(rank[self.unit[there]]).tolist():
                gone |= set(self.unit[there][rank[self.unit[there]] == when].tolist())
                count = self.count(position, frozenset(gone))
                gained[when] += count - known
                known = count

    # --- one node ----------------------------------------------------------------------------------------------------
    def count(self, position: int, gone: frozenset[int]) -> int:
        """What one node holds without these units."""
        if not self.where[position]:
            return 0
        key = position, gone
        known = self._known.get(key)
        if known is None:
            exact = self._by_statement if self.tenants.odd[position] else self._by_sums
            known = self._known[key] = exact(position, gone)
        return known

    def _by_statement(self, position: int, gone: Iterable[int]) -> int:
        statement = self.trial.statement
        name, mark = statement.nodes[position].name, statement.checkpoint()
        units = [self.table.residents[row] for row in gone]
        statement.evict(*(pod for unit in units if unit for pod in unit.pods if pod.node == name))
        found = int(of_way(statement, self.way, slice(position, position + 1))[0])
        statement.rollback(mark)
        return found

    def _by_sums(self, position: int, gone: frozenset[int]) -> int:
        free = list(self._free_at(position))
        for row in gone:
            for at, amount in enumerate(self.holds(row).get(position, ())):
                free[at] += amount
        devices = self.tenants.by_node.get(position, ())
        if self._whole is not None:
            free[self._whole] += sum(device.comes_back(gone) for device in devices)
        found = min(has // amount for has, (_, amount) in zip(free, self._asked, strict=False))
        if self._on_card:
            found = min(found, (max(0, free[-1]) * self._on_card + self._parts_of(devices, gone)) // self._parts)
        return max(0, found)

    def _parts_of(self, devices: Iterable[SharedDevice], gone: frozenset[int]) -> int:
        return sum(device.left_nano(gone) // self._smallest for device in devices if device.is_open)

    def _free_at(self, position: int) -> list[int]:
        known = self._frees.get(position)
        if known is None:
            known = self._frees[position] = self._free[:, position].tolist()
        return known

    def lacks(self, position: int, wanted: int) -> list[int] | None:
        """What a node lacks of each row for a number of pods, all at once; None where that is not just a sum."""
        if self.tenants.odd[position] or self.tenants.shared[position]:
            return None
        wants = [wanted * amount for _, amount in self._asked]
        wants.append(-(-wanted * self._parts // self._on_card) if self._on_card else 0)
        lacks = [want - has for want, has in zip(wants, self._free_at(position), strict=True)]
        # A row that is not asked is never short.
        return lacks if self._on_card else [*lacks[:-1], min(0, lacks[-1])]

    def holds(self, row: int) -> dict[int, list[int]]:
        """What a unit holds, by position: of each row that is asked."""
        known = self._holds.get(row)
        if known is None:
            known = self._holds[row] = self._read(row)
        return known

    def _read(self, row: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        unit, statement = self.table.residents[row], self.trial.statement
        for pod in unit.pods if unit else ():
            position = statement.position_of.get(pod.node)
            if position is not None:
                amounts = dict(statement.amounts(pod.cls.demand))
                held = found.setdefault(position, [0] * len(self._rows))
                for at, each in enumerate(self._rows):
                    held[at] += amounts.get(each, 0)
        return found


def _within(each: Int64s, of: Int64s) -> Int64s:
    """Sums along each run of equal numbers."""
    sums: Int64s = np.cumsum(each, axis=1)
    if not len(of):
        return sums
    firsts = np.flatnonzero(np.r_[True, of[1:] != of[:-1]])
    before = sums[:, firsts] - each[:, firsts]
    return sums - np.repeat(before, np.diff(np.r_[firsts, len(of)]), axis=1)


def free_now(trial: Trial, rows: Sequence[int]) -> Int64s:
    """What is free of these rows; whole GPUs that can be given back, or are on their way, count."""
    table = trial.statement.table
    free: Int64s = table.free[rows].copy()
    if GPUS in rows:
        free[rows.index(GPUS)] += table.extra[IDLE] + table.extra[LEAVING]
    return free


Floats = npt.NDArray[np.float64]
#: Costs are compared for each pod in parts of this.
PARTS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Estimates:
    """Of one class, as ``counting`` counts it."""

    counting: Counting
    pricing: Pricing

    def of(self, pool: Int64s) -> tuple[Iterable[tuple[int, int]], dict[int, list[int]]]:
        """For each node with units of the pool about what its next slot costs, by parts of units at the best rate.

        And its units of the pool, each once.
        """
        counting = self.counting
        place = np.full(len(counting.table.units.of["leaf"]), EMPTY, np.int64)
        place[pool] = np.arange(len(pool))
        unit, position = counting.unit, counting.position
        pods = np.flatnonzero((unit != EMPTY) & (position >= 0) & (place[unit] != EMPTY))
        pods = pods[counting.where[position[pods]]]
        if not len(pods):
            return [], {}
        size, rate = self._sizes(pods), self._rates(unit[pods])
        order = np.lexsort((place[unit[pods]], rate, position[pods]))
        pods, size, rate = pods[order], size[order], rate[order]
        at = position[pods]
        firsts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        where = at[firsts]
        candidates = _by_node(unit[pods], firsts, where)
        sums, costs = np.cumsum(size), np.cumsum(size * rate)
        counts = np.diff(np.r_[firsts, len(pods)])
        sums -= np.repeat(sums[firsts] - size[firsts], counts)
        costs -= np.repeat(costs[firsts] - size[firsts] * rate[firsts], counts)
        short = np.repeat(self._short(where), counts)
        enough = np.where(sums >= short, np.arange(len(pods)), len(pods))
        first = np.minimum(np.minimum.reduceat(enough, firsts), np.r_[firsts[1:], len(pods)] - 1)
        least = costs[first] - np.maximum(0, sums[first] - short[firsts]) * rate[first]
        # Where even all units are too few by their sizes, nothing is to be had; the statement says so of the others.
        last = np.r_[firsts[1:], len(pods)] - 1
        some = (sums[last] >= short[firsts]) | (counting.tenants.odd | counting.tenants.shared)[where]
        where, least = where[some], least[some]
        costs_of = (np.maximum(least, 0) * PARTS).astype(np.int64)
        return zip(where.tolist(), costs_of.tolist(), strict=True), candidates

    def _by_gpu(self) -> bool:
        way = self.counting.way
        return bool(way.demand.gpus or way.request.shared)

    def _sizes(self, pods: Int64s) -> Floats:
        """How large pods are in what is asked first: GPUs, or CPU."""
        sizes: Floats = self.counting.table.pods.of["gpu" if self._by_gpu() else "cpu"][pods].astype(np.float64)
        return sizes

    def _rates(self, units: Int64s) -> Floats:
        """What units cost for each part of what is asked: near enough to say where to look first."""
        of = self.counting.table.units.of
        wall_s = self.pricing.wall_s
        ages = np.maximum(LEAST_S, wall_s - np.where(of["started_s"][units] > 0, of["started_s"][units], wall_s))
        gpus = float(self.pricing.total.gpu_nano or NANO_PER_DEVICE)
        shares = [
            of[name][units] * (gpus / has) if has else np.zeros(len(units))
            for name, has in zip(("cpu", "mem", "gpu"), self.pricing.total, strict=True)
        ]
        size = of["gpu" if self._by_gpu() else "cpu"][units]
        rates: Floats = np.maximum.reduce(shares) * ages / np.maximum(size, 1) / NANO_PER_DEVICE
        return rates

    def _short(self, where: Int64s) -> Floats:
        """How much of that each node lacks for its next pod."""
        way, free = self.counting.way, self.counting.trial.statement.table.free
        if way.request.shared:
            return np.full(len(where), max(1, min(map(least_nano, way.request.shared))), np.float64)
        row, amount = (GPUS, way.demand.gpus) if way.demand.gpus else (CPU, max(1, way.demand.cpu_milli))
        lacks = amount - np.maximum(free[row, where], 0) % amount
        lacking: Floats = lacks * float(NANO_PER_DEVICE if row == GPUS else 1)
        return lacking


def _by_node(units: Int64s, firsts: Int64s, where: Int64s) -> dict[int, list[int]]:
    """Units by node, each once; ``firsts``: where those of each node begin."""
    parts = zip(where.tolist(), np.split(units, firsts[1:]), strict=True)
    return {position: list(dict.fromkeys(part.tolist())) for position, part in parts}
