"""Of which kinds of devices a class asks for shares: cards, MIG slices of a profile, or several, each alone.

Each node has its devices of one kind under one resource, and none of another is ever a substitute for it
(docs/design/slices.md).
"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from gpu.request import FractionAsk, MemoryAsk, SharedAsk
from scheduler.core.devices.device_fit import fitting, free_in_slots
from scheduler.core.nodes.ledger import NO_RESOURCE
from scheduler.core.nodes.table import CLOSED, GPUS, MIG, MULTIPLIED, Bools, Int64s, Selection, Table
from scheduler.core.snapshot.statement import Statement

NOWHERE = np.iinfo(np.int64).max


class Pool(msgspec.Struct, frozen=True, gc=False):
    """Asks for devices of one kind. ``rows``: of which resource they are at each position; None: cards."""

    profile: str
    asks: tuple[SharedAsk, ...]
    rows: Int64s | None

    def is_there(self, table: Table) -> Bools:
        """At which positions there are such devices to be shared."""
        found: Bools = self.rows != NO_RESOURCE if self.rows is not None else _shares_cards(table)
        return found

    def spare(self, table: Table, selection: Selection, asked: dict[int, int]) -> Int64s:
        """How many of them could be opened, beside what a pod that asks so much (by row) is handed out whole."""
        if self.rows is None:
            return table.free[GPUS, selection] - asked.get(GPUS, 0)
        rows = self.rows[selection]
        whole = np.zeros(len(table.resources), np.int64)
        for row, amount in asked.items():
            whole[row] = amount
        free: Int64s = table.free[:, selection][rows, np.arange(len(rows))]
        return free - whole[rows]

    def left_nano(self, table: Table, selection: Selection) -> Int64s:
        """What is free of those that are shared already."""
        free = free_in_slots(table, selection, self.rows)
        left: Int64s = np.where(free == CLOSED, 0, free).sum(axis=0)
        return left

    def tightest(self, table: Table, selection: Selection) -> tuple[Int64s, Int64s]:
        """Per node: devices that have to be opened, and the sum of nano free on the tightest devices that fit.

        Exact for asks in one unit: this many are at least as large as one of them, and all of these need other devices
        that hold it. A fraction and memory beside each other are looked at as if each were alone, and so is what is
        tightest for unequal asks: that can only be too hopeful, and the choice of devices (placer.py) has the last
        word.
        """
        if all(ask == self.asks[0] for ask in self.asks):
            return self._equal(table, self.asks[0], len(self.asks), selection)
        each: list[tuple[Int64s, Int64s]] = []
        for kind in (FractionAsk, MemoryAsk):
            larger = 0
            counted = Counter(_amount(ask) for ask in self.asks if isinstance(ask, kind))
            for amount, count in sorted(counted.items(), reverse=True):
                each.append(self._equal(table, kind(amount), count, selection, larger=larger))
                larger += count
        most = np.maximum.reduce([opened for opened, _ in each])
        return most, np.add.reduce([tight for _, tight in each])

    def _equal(
        self, table: Table, ask: SharedAsk, count: int, selection: Selection, *, larger: int = 0
    ) -> tuple[Int64s, Int64s]:
        """The same for ``count`` asks, beside which ``larger`` ones want such devices as well."""
        free = free_in_slots(table, selection, self.rows)
        fits = fitting(ask, table, selection, free)
        nodes = free.shape[1]
        if not len(free):
            return np.full(nodes, count + larger, np.int64), np.zeros(nodes, np.int64)
        opened: Int64s = np.maximum(count + larger - fits.sum(axis=0), 0)
        usable = np.where(fits, free, NOWHERE)
        if count == 1:
            tight = usable.min(axis=0)
            tight[tight == NOWHERE] = 0
            return opened, tight
        usable.sort(axis=0)
        usable = usable[:count]
        usable[usable == NOWHERE] = 0
        summed: Int64s = usable.sum(axis=0)
        return opened, summed


def _shares_cards(table: Table) -> Bools:
    found: Bools = (table.extra[MIG] == 0) & (table.extra[MULTIPLIED] == 0)
    return found


def pools_of(asks: tuple[SharedAsk, ...], statement: Statement) -> tuple[Pool, ...]:
    """Sort asks by the kind of device."""
    profiles = dict.fromkeys(ask.profile for ask in asks)
    return tuple(
        Pool(
            profile,
            tuple(ask for ask in asks if ask.profile == profile) if len(profiles) > 1 else asks,
            statement.slice_rows(profile) if profile else None,
        )
        for profile in profiles
    )


def _amount(ask: SharedAsk) -> int:
    return ask.nano if isinstance(ask, FractionAsk) else ask.mem_mib
