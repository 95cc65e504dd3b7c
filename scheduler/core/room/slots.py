"""How many pods of one class each node holds at most, as a statement stands: a bound, exact in the simple case.

A node holds no more than what is free of each thing that is asked allows. Whole GPUs that idle reservations hold, or
that are on their way back, count as free. What is left out (pins, modes, volumes, others' anti-affinity) only ever
makes it fewer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Bools, Int64s, Selection
from scheduler.core.snapshot.node_mask import all_but
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
