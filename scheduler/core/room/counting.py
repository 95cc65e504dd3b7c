"""How many pods of one class nodes hold once units are gone: what a search counts before the placer has its word.

What most nodes gain is the sum of what their pods hold, so it is counted for all of them at once. A node with shared
devices is counted again by the statement: a device comes back when its last tenant goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.table import GPUS, Bools, Int64s
from scheduler.core.room.slots import MANY, asked, least_nano, may_be, of_way
from scheduler.core.room.table import EMPTY, ResidentTable
from scheduler.core.room.trial import Trial


@dataclass(slots=True)
class Counting:
    """Of one class with one request. ``here``: what each node holds as the statement stands."""

    trial: Trial
    table: ResidentTable
    way: PodClass
    where: Bools = field(init=False)
    special: Bools = field(init=False)
    here: Int64s = field(init=False)
    #: Of each pod of a unit: its unit, where it is, and what it holds of each row that is asked.
    unit: Int64s = field(init=False)
    position: Int64s = field(init=False)
    held: Int64s = field(init=False)
    #: Parts of a card that one pod asks, and how many of the smallest of them a card holds; 0: that says nothing.
    _parts: int = field(init=False)
    _on_card: int = field(init=False)
    _asked: list[tuple[int, int]] = field(init=False)
    _rows: list[int] = field(init=False)
    _known: dict[tuple[int, frozenset[int]], int] = field(default_factory=dict)
    _free: Int64s = field(init=False)
    _frees: dict[int, list[int]] = field(default_factory=dict)
    _holds: dict[int, dict[int, list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        statement, table = self.trial.statement, self.table
        self._asked = asked(statement, self.way)
        # Parts of devices come out of whole ones.
        rows = [row for row, _ in self._asked]
        shared = self.way.request.shared
        rows += [GPUS] if shared and GPUS not in rows else []
        self._parts, smallest = len(shared), min(map(least_nano, shared), default=0)
        self._on_card = NANO_PER_DEVICE // smallest if smallest else 0
        self.where = may_be(statement, self.way)
        self.special = special(self.trial, table)
        self.here = np.where(self.where, of_way(statement, self.way), 0)
        self.unit = table.pods.of["unit"]
        self.position = table.positions(self.trial)
        self.held = table.demands(self.trial, rows)
        self._rows = rows
        self._free = statement.table.free

    # --- all nodes at once -------------------------------------------------------------------------------------------
    def prefix(self, sequence: Int64s, needed: int) -> int | None:
        """How many of the first units are enough; None if all of them are not."""
        gained = np.zeros(len(sequence), np.int64)
        rank = np.full(len(self.table.units.of["leaf"]), EMPTY, np.int64)
        rank[sequence] = np.arange(len(sequence))
        mine = (self.unit != EMPTY) & (self.position >= 0)
        mine &= (rank[self.unit] != EMPTY) & self.where[self.position]
        self._gain_plain(gained, rank, np.flatnonzero(mine & ~self.special[self.position]))
        self._gain_special(gained, rank, np.flatnonzero(mine & self.special[self.position]))
        total = int(self.here.sum()) + np.cumsum(gained)
        enough = int(np.searchsorted(total, needed))
        return enough + 1 if enough < len(total) else None

    def _gain_plain(self, gained: Int64s, rank: Int64s, pods: Int64s) -> None:
        """When each node gains its next slots, by one pass over its pods in their order."""
        if not len(pods):
            return
        order = np.lexsort((rank[self.unit[pods]], self.position[pods]))
        pods = pods[order]
        at, when = self.position[pods], rank[self.unit[pods]]
        firsts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        counts = np.diff(np.r_[firsts, len(pods)])
        held = np.cumsum(self.held[:, pods], axis=1)
        before = held[:, firsts] - self.held[:, pods[firsts]]
        held = held - np.repeat(before, counts, axis=1)
        there = self._at(at, held)
        gain = there.copy()
        gain[1:] -= there[:-1]
        gain[firsts] = there[firsts] - self.here[at[firsts]]
        np.add.at(gained, when, gain)

    def _at(self, at: Int64s, held: Int64s) -> Int64s:
        """What nodes hold with so much more free."""
        more = dict(zip(self._rows, held, strict=True))
        found = np.full(len(at), MANY, np.int64)
        for row, amount in self._asked:
            np.minimum(found, (self._free[row, at] + more[row]) // amount, out=found)
        if self._on_card:
            whole = np.maximum(self._free[GPUS, at] + more[GPUS], 0)
            np.minimum(found, whole * self._on_card // self._parts, out=found)
        return np.maximum(found, 0, out=found)

    def _gain_special(self, gained: Int64s, rank: Int64s, pods: Int64s) -> None:
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
            exact = self._by_statement if self.special[position] else self._by_sums
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

    def _by_sums(self, position: int, gone: Iterable[int]) -> int:
        more = [0] * len(self._rows)
        for row in gone:
            for at, amount in enumerate(self.holds(row).get(position, ())):
                more[at] += amount
        return self.of_plain(position, more)

    def of_plain(self, position: int, more: Sequence[int]) -> int:
        """What a node without shared devices holds with so much more free."""
        free = [has + amount for has, amount in zip(self._free_at(position), more, strict=True)]
        found = min(has // amount for has, (_, amount) in zip(free, self._asked, strict=False))
        if self._on_card:
            found = min(found, max(0, free[self._rows.index(GPUS)]) * self._on_card // self._parts)
        return max(0, found)

    def _free_at(self, position: int) -> list[int]:
        known = self._frees.get(position)
        if known is None:
            known = self._frees[position] = [int(self._free[row, position]) for row in self._rows]
        return known

    def lacks(self, position: int, wanted: int) -> list[int] | None:
        """What a node lacks of each row for so many pods, all at once; None where that is not just a sum."""
        if self.special[position] or (self._on_card and GPUS in dict(self._asked)):
            return None
        wants = [wanted * amount for _, amount in self._asked]
        if len(self._rows) > len(wants):
            wants.append(-(-wanted * self._parts // self._on_card) if self._on_card else 0)
        return [want - has for want, has in zip(wants, self._free_at(position), strict=True)]

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


def special(trial: Trial, table: ResidentTable) -> Bools:
    """Nodes of which the statement has to count what comes free: with shared devices, or slices in an old form."""
    statement = trial.statement
    found = np.fromiter(map(bool, statement.table.devices), np.bool_, len(statement.nodes))
    positions = table.positions(trial)
    odd = (table.pods.of["is_special"] == 1) & (positions >= 0)
    found[positions[odd]] = True
    return found


def freed(trial: Trial, table: ResidentTable, gone: Bools, rows: Sequence[int]) -> dict[int, Int64s]:
    """Take the units of these rows off: what most nodes gain of resource rows is returned, the others' is evicted.

    The caller goes back to its checkpoint of the statement.
    """
    unit, position = table.pods.of["unit"], table.positions(trial)
    mine = (unit != EMPTY) & (position >= 0) & gone[unit]
    odd = special(trial, table)[position]
    there = mine & ~odd
    found = {}
    for row, held in zip(rows, table.demands(trial, rows), strict=True):
        found[row] = np.zeros(len(trial.statement.nodes), np.int64)
        np.add.at(found[row], position[there], held[there])
    there = mine & odd
    if there.any():
        at = set(position[there].tolist())
        position_of = trial.statement.position_of
        units = [table.residents[row] for row in np.unique(unit[there]).tolist()]
        pods = (pod for each in units if each is not None for pod in each.pods)
        trial.statement.evict(*(pod for pod in pods if position_of.get(pod.node) in at))
    return found
