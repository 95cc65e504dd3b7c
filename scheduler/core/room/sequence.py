"""In which order units go, and which of them may: each is judged with what those before it took (docs/design/room.md).

KAI's order reversed: the queue that would be served last goes first, with what was taken of it off; in it the lowest
priority, surplus before cores, the newest.

All at once: what is taken of a queue makes its key smaller, never larger. So the key that a queue has when a unit has
its turn follows from the units before it in the same queue, and to merge queues is to sort by those keys. Whether a
unit may be taken follows likewise from those before it below the queue where it parts from the taker: they are cut off
where the queue has no more to give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.core.model.preemption import Action
from scheduler.core.model.quota import UNITS, UNLIMITED, Resources
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.room.rules import Rules
from scheduler.core.room.table import ResidentTable

_PLACES: Final = 1 << 32
_VOID: Final = 1_000
_TOP: Final = -1
#: Queues may hold more than 64 bits count: a pod that names its node itself asks what it likes.
_MOST: Final = 1 << 61


def permitted(table: ResidentTable, rows: Int64s, rules: Rules) -> Int64s:
    """Rows of the units that may be taken one after the other, in order. ``rows``: as ``in_queue`` has them."""
    return _Merging(table, rules, rows).all()


def in_queue(table: ResidentTable, able: Bools) -> Int64s:
    """Rows in the order in which they go in one queue. It follows from the units alone, not from their rows."""
    rows = np.flatnonzero(able)
    of = {name: table.units.of[name][rows] for name in ("priority", "is_core", "created_s", "uid", "place")}
    order = np.lexsort((of["place"], -of["uid"], -of["created_s"], of["is_core"], of["priority"]))
    keys = np.stack([of[name][order] for name in ("priority", "is_core", "created_s", "uid")])
    return _by_whole_uids(table, rows[order], keys)


def _by_whole_uids(table: ResidentTable, rows: Int64s, keys: Int64s) -> Int64s:
    """Put those in order that are equal but for what the column of UIDs leaves out of them."""
    equal = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    tied = np.flatnonzero(np.r_[equal, False] | np.r_[False, equal])
    if not len(tied):
        return rows
    runs, uids = np.cumsum(np.r_[True, ~equal])[tied], [_uid(table, row) for row in rows[tied].tolist()]
    newest = np.array(sorted(range(len(tied)), key=uids.__getitem__, reverse=True), np.int64)
    rows[tied] = rows[tied][newest[np.argsort(runs[newest], kind="stable")]]
    return rows


def _uid(table: ResidentTable, row: int) -> str:
    unit = table.residents[row]
    return "" if unit is None else unit.uid


def amounts(table: ResidentTable, rows: Int64s) -> Int64s:
    """What units count for, by dimension."""
    return np.stack([table.units.of[name][rows] for name in ("cpu", "mem", "gpu")])


@dataclass(slots=True)
class _Merging:
    """Merges the units of queues, from below upward. ``rows``: in the order that they have in one queue."""

    table: ResidentTable
    rules: Rules
    rows: Int64s
    _of_leaf: dict[int, Int64s] = field(default_factory=dict)

    def all(self) -> Int64s:
        """Those of all queues."""
        if self.rules.action is Action.PREEMPT:
            return self.rows
        leaves = self.table.units.of["leaf"][self.rows]
        order = np.argsort(leaves, kind="stable")
        numbers, starts = np.unique(leaves[order], return_index=True)
        parts = np.split(self.rows[order], starts[1:]) if len(numbers) else []
        self._of_leaf = dict(zip(numbers.tolist(), parts, strict=True))
        return self._merged(self.rules.accounts.tree.top)

    def _below(self, number: int) -> Int64s:
        """Those below a queue; of one that parts from the taker's as many as it has to give."""
        queue, path = self.rules.accounts.tree.queues[number], self.rules.taker.path
        none = self.rows[:0]
        rows = self._merged(queue.children) if queue.children else self._of_leaf.get(number, none)
        parts = number not in path and (queue.parent == _TOP or queue.parent in path)
        return self._cut(number, rows) if parts and len(rows) else rows

    def _merged(self, numbers: Sequence[int]) -> Int64s:
        parts = [(number, rows) for number, rows in ((each, self._below(each)) for each in numbers) if len(rows)]
        if len(parts) < 2:
            return parts[0][1] if parts else self.rows[:0]
        rows = np.concatenate([part for _, part in parts])
        return rows[np.lexsort(self._keys(parts))]

    def _keys(self, parts: Sequence[tuple[int, Int64s]]) -> list[Int64s]:
        """The key of its queue at each unit's turn (order.py), last criterion first, the largest first."""
        accounts, queues = self.rules.accounts, self.rules.accounts.tree.queues
        numbers = [number for number, _ in parts]
        lengths = [len(rows) for _, rows in parts]

        def each(values: Sequence[Sequence[int]]) -> Int64s:
            return np.repeat(_counted(values).reshape(len(parts), -1).T, lengths, axis=1)

        kept = each([self.rules.kept[number] for number in numbers])
        kept -= np.concatenate([_before(amounts(self.table, rows)) for _, rows in parts], axis=1)
        fair = each([accounts.of[number].fair for number in numbers])
        quota = each([queues[number].record.quota for number in numbers])
        most = [accounts.of[number].allocatable for number in numbers]
        ties = sorted(
            range(len(numbers)),
            key=lambda at: ((*reversed(most[at]),), queues[numbers[at]].record.created, queues[numbers[at]].name),
        )
        rank = np.argsort(np.array(ties))
        shares = each(most)
        return [
            -np.repeat(rank, lengths),
            -_dominant(kept, shares, accounts.total),
            -((kept > 0) & (shares == 0)).any(axis=0).astype(np.int64),
            each([[queues[number].record.priority] for number in numbers])[0],
            -(~(kept <= quota).all(axis=0)).astype(np.int64),
            -(kept > fair).all(axis=0).astype(np.int64),
        ]

    def _cut(self, number: int, rows: Int64s) -> Int64s:
        rules, leaf = self.rules, self.rules.accounts.tree.queues[number]
        kept, most, quota = _counted([rules.kept[number], rules.accounts.of[number].allocatable, leaf.record.quota])
        left = kept[:, None] - _before(amounts(self.table, rows))
        gives = (left > most[:, None]).any(axis=0)
        if rules.is_within_quota(leaf):
            gives |= (left > quota[:, None]).any(axis=0)
        return rows if gives.all() else rows[: int(gives.argmin())]


def _counted(values: Sequence[Sequence[int]]) -> Int64s:
    """Amounts as an array, none of them beyond what it can count on with."""
    return np.array([[min(amount, _MOST) for amount in each] for each in values], np.int64)


def _before(each: Int64s) -> Int64s:
    """The sums of all before each one."""
    sums: Int64s = np.cumsum(each, axis=1) - each
    return sums


def _dominant(kept: Int64s, most: Int64s, total: Resources) -> Int64s:
    """The largest part that is kept of what a queue may come to use, in parts of 2^32: as in order.py."""
    parts = []
    for at, unit in enumerate(UNITS):
        share = np.where(most[at] >= UNLIMITED, total[at], most[at])
        void = kept[at].astype(np.float64) * _VOID / unit
        parts.append(np.where(share > 0, kept[at] / np.maximum(share, 1), void))
    dominant: Int64s = np.floor(np.minimum(np.maximum.reduce(parts) * _PLACES, _MOST)).astype(np.int64)
    return dominant
