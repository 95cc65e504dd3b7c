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
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Int64s
from scheduler.core.snapshot.node_mask import all_but
from scheduler.core.snapshot.statement import Statement

#: As many as nobody needs.
MANY: Final = 1 << 40


def slots(statement: Statement, cls: PodClass) -> Int64s:
    """By position, the most pods of a class, by the best of its requests."""
    found = np.zeros(len(statement.nodes), np.int64)
    for way in cls.ways():
        np.maximum(found, _of_way(statement, way), out=found)
    mask = all_but(cls.excluded, statement.position_of)
    if mask is not None:
        found[~mask] = 0
    return found


def _of_way(statement: Statement, way: PodClass) -> Int64s:
    resources, asks = statement.table.resources, way.request.shared
    if not all(name in resources for name, _ in way.demand.extended):
        return np.zeros(len(statement.nodes), np.int64)
    found = np.full(len(statement.nodes), MANY, np.int64)
    for row, amount in statement.amounts(way.demand):
        np.minimum(found, _free(statement, row) // amount, out=found)
    if asks:
        np.minimum(found, _of_shares(statement, asks), out=found)
    found[statement.eligible(way.constraints) != OK] = 0
    return np.maximum(found, 0, out=found)


def _free(statement: Statement, row: int) -> Int64s:
    table = statement.table
    if row != GPUS:
        free: Int64s = table.free[row]
        return free
    whole: Int64s = table.free[GPUS] + table.extra[IDLE] + table.extra[LEAVING]
    return whole


def _of_shares(statement: Statement, asks: tuple[SharedAsk, ...]) -> Int64s | int:
    """By the parts of cards: as many of the smallest as there are, by how many parts one pod asks."""
    smallest = min(map(_least_nano, asks))
    if smallest <= 0:
        return MANY
    table = statement.table
    parts = np.maximum(table.free[GPUS], 0) * (NANO_PER_DEVICE // smallest)
    for free in table.share_nano:
        parts = parts + np.maximum(free, 0) // smallest
    found: Int64s = parts // len(asks)
    return found


def _least_nano(ask: SharedAsk) -> int:
    """The least that it takes of a card; 0 where that says nothing: of slices, and memory of cards of any size."""
    return ask.nano if isinstance(ask, FractionAsk) and not ask.profile else 0
