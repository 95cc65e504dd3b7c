"""Whether a class passes the plain sums of a node: what it needs on any node that takes it.

They are never too strict: a node that a closer look would refuse may pass, one that would take a pod of the class
always does. Few rows are looked at one by one, many at once: below some ten of them numpy's calls cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from gpu.request import FractionAsk, SharedAsk
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import Constraints, PodClass
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Bools, Int64s, Table

_FEW: Final = 10


class Columns(NamedTuple):
    """A table of what is left, and where each row of the ledger is in it; None for a row that has no node."""

    table: Table
    column_of: Callable[[int], int | None]


class Needs(NamedTuple):
    """What a class needs of each node. ``amounts``: by row of the table; None if no node has one of its resources.

    ``asks``: the first share that it asks, if there is one, and if nothing else will do in its place.
    """

    cls: PodClass
    amounts: list[tuple[int, int]] | None
    gpus: int
    resources: int
    constraints: tuple[Constraints, ...] = ()
    asks: tuple[SharedAsk, ...] = ()


def needs_of(ledger: Ledger, cls: PodClass) -> Needs:
    """What a class needs, as long as the table has as many resources as it has now."""
    resources = ledger.table.resources
    if not all(name in resources for name, _ in cls.demand.extended):
        return Needs(cls, None, 0, len(resources))
    amounts = ledger.amounts(cls.demand, pods=1).tolist()
    asked = [(at, each) for at, each in enumerate(amounts) if each]
    asks = () if cls.alternatives else cls.request.shared[:1]
    return Needs(cls, asked, amounts[GPUS], len(resources), cls.all_constraints(), tuple(asks))


def passing(ledger: Ledger, needs: Needs, rows: Sequence[int], columns: Columns | None = None) -> Sequence[int]:
    """Rows of those given on which the class passes; by the ledger's own table, or by another one."""
    if needs.amounts is None:
        return ()
    if out := needs.cls.excluded:
        rows = [row for row in rows if (node := ledger.nodes[row]) is None or node.name not in out]
    if not rows:
        return ()
    if columns is None and len(rows) > _FEW:
        at_once = np.array(rows, np.int64)
        many: list[int] = at_once[_pass(ledger, needs, at_once)].tolist()
        return many
    table, column_of = columns or Columns(ledger.table, _same)
    judged = [ledger.eligible(constraints) for constraints in needs.constraints]
    found: list[int] = []
    for row in rows:
        column = column_of(row) if any(each.item(row) == OK for each in judged) else None
        if column is not None and _passes(table, needs, column):
            found.append(row)
    return found


def has_slots(ledger: Ledger, needs: Needs, rows: Sequence[int], wanted: int) -> bool:
    """Whether a number of pods of the class may fit on rows on which it passes, by the ledger's own table."""
    found = 0
    for row in rows:
        found += slots(ledger.table, needs, row)
        if found >= wanted:
            return True
    return False


def slots(table: Table, needs: Needs, column: int) -> int:
    """How many pods of a class that passes there a column takes at most, idle reservations included."""
    if needs.asks:
        return 1
    return max(1, min((_left(table, at, column) // amount for at, amount in needs.amounts or ()), default=1))


def _left(table: Table, at: int, column: int) -> int:
    """What a column may have of a resource: of GPUs with those that idle reservations hold."""
    left = int(table.free.item(at, column))
    if at == GPUS:
        left += int(table.extra.item(IDLE, column)) + int(table.extra.item(LEAVING, column))
    return left


def _same(row: int) -> int:
    return row


def _passes(table: Table, needs: Needs, column: int) -> bool:
    if any(_left(table, at, column) < amount for at, amount in needs.amounts or ()):
        return False
    if not needs.asks:
        return True
    could_open = _left(table, GPUS, column)
    return all(could_open > needs.gpus or _takes(table, ask, column) for ask in needs.asks)


def _takes(table: Table, ask: SharedAsk, column: int) -> bool:
    """Whether a device that is shared already may take an ask."""
    if ask.profile:
        return True
    if isinstance(ask, FractionAsk):
        return any(each >= ask.nano for each in table.share_nano[:, column].tolist())
    return any(each >= ask.mem_mib for each in table.share_mib[:, column].tolist())


def _pass(ledger: Ledger, needs: Needs, rows: Int64s) -> Bools:
    """The same of many rows at once."""
    table, cls = ledger.table, needs.cls
    found: Bools = np.zeros(len(rows), np.bool_)
    for constraints in needs.constraints:
        found |= ledger.eligible(constraints)[rows] == OK
    free, amounts = table.free[:, rows], ledger.amounts(cls.demand, pods=1)
    free[GPUS] += table.extra[IDLE, rows] + table.extra[LEAVING, rows]
    asked = np.flatnonzero(amounts)
    found &= np.logical_and.reduce(free[asked] >= amounts[asked, None], axis=0)
    for ask in needs.asks:
        found &= _take(ledger, ask, rows) | (free[GPUS] > amounts[GPUS])
    return found


def _take(ledger: Ledger, ask: SharedAsk, rows: Int64s) -> Bools:
    if ask.profile:
        return np.ones(len(rows), np.bool_)
    table = ledger.table
    if isinstance(ask, FractionAsk):
        fits = table.share_nano[:, rows] >= ask.nano
    else:
        fits = table.share_mib[:, rows] >= ask.mem_mib
    found: Bools = np.logical_or.reduce(fits, axis=0)
    return found
