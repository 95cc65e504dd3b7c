"""How many pods of a class each node takes, were they the only ones to come: an upper bound, and mostly exact.

It is never too small: domains without room by this number are out for sure, and placing has the last word on others.
Too hopeful are shares of several sizes, volumes that nodes limit, and rules about other pods beyond the first one.
"""

from __future__ import annotations

import numpy as np

from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_fit import Pool, fitting, free_in_slots, pools_of
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.table import GPUS, IDLE, LARGEST_CARD, LEAVING, Int64s, Table
from scheduler.core.snapshot.node_mask import NodeMask

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
