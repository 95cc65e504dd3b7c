"""Which units a search chooses from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from scheduler.core.model.quota import Resources
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.cost import Pricing
from scheduler.core.room.rules import Rules
from scheduler.core.room.sequence import in_queue
from scheduler.core.room.table import ResidentTable

_NONE: Final = Counter[int]()


def by_budgets(table: ResidentTable, sequence: Int64s, budgets: Budgets, rules: Rules) -> Int64s:
    """Those of a sequence that budgets allow together; a core of which surplus is left out stays as well."""
    if budgets.forbid_nothing:
        return sequence
    taken, kept, lost = Counter[int](), dict[int, None](), dict[int, Resources]()
    for row in sequence.tolist():
        unit = table.residents[row]
        if unit is None or not kept.keys() >= set(table.surplus_of(row)):
            continue
        more = _NONE if rules.outgrows_budgets(unit, lost) else budgets.takes(unit.pods)
        if more is None or not budgets.allow(taken, more):
            continue
        taken += more
        rules.take(unit, lost)
        kept[row] = None
    return np.array(list(kept), np.int64)


def of_low_priority(table: ResidentTable, sequence: Int64s, is_enough: Callable[[Int64s], bool]) -> Int64s:
    """Those of a sequence up to the lowest priority that is enough."""
    priorities = table.units.of["priority"][sequence]
    for most in np.unique(priorities).tolist():
        pool: Int64s = sequence[priorities <= most]
        if len(pool) == len(sequence) or is_enough(pool):
            return pool
    return sequence


def by_size(table: ResidentTable, able: Bools, rules: Rules, *, largest_first: bool = False) -> Int64s:
    """Units that may be taken one after the other: the smallest first, so that most may, or the largest.

    By GPUs, then CPU, then memory; cores that have surplus come after it.
    """
    rows, sign = in_queue(table, able), -1 if largest_first else 1
    return _permitted(table, rows, [sign * table.units.of[name][rows] for name in ("mem", "cpu", "gpu")], rules)


def by_cost(table: ResidentTable, able: Bools, rules: Rules, pricing: Pricing) -> Int64s:
    """Units that may be taken one after the other: the lowest priority first, then those with which least is lost."""
    rows = in_queue(table, able)
    losses = [pricing.loss(unit) for unit in table.at(rows.tolist())]
    ranks = {loss: rank for rank, loss in enumerate(sorted(set(losses)))}
    cheap = np.array([ranks[loss] for loss in losses], np.int64)
    return _permitted(table, rows, [cheap, table.units.of["priority"][rows]], rules)


def _permitted(table: ResidentTable, rows: Int64s, keys: Sequence[Int64s], rules: Rules) -> Int64s:
    """Those that may be taken one after the other by these keys, the last one first; cores after their surplus."""
    has_surplus = np.array([bool(table.surplus_of(row)) for row in rows.tolist()], np.bool_)
    order = np.lexsort((*keys, has_surplus))
    lost: dict[int, Resources] = {}
    kept: dict[int, None] = {}
    for row in rows[order].tolist():
        unit = table.residents[row]
        if unit is None or not rules.may_take(unit, lost) or not kept.keys() >= set(table.surplus_of(row)):
            continue
        rules.take(unit, lost)
        kept[row] = None
    return np.array(list(kept), np.int64)
