"""Which node next: one number a node and class, the smallest wins, NOWHERE if the class doesn't fit.

The numbers of a class are computed once for all nodes and then again only for nodes that were charged since, so that
the ten-thousandth pod costs no look over ten thousand nodes.

The order (kai-contract 4.4, made exact), smaller first, then by node name:

- shares, binpack: devices that would have to be opened; nano left on the tightest devices that fit; what is left of
  the node's GPUs. Spread: the emptiest node by share of its GPUs.
- whole GPUs, binpack: whole devices free, what is left of the node's GPUs. Spread: as above.
- CPU only: nodes without GPUs first; binpack: milli-CPU free; spread: the emptiest by share of its CPU.

A node that owes an answer comes after all others for a share that would have to wait for it, too (slow_nodes.py).

Of equal ones those come first that enforce all that the class wishes, where it does not insist on that anyhow.

What is left of a node's GPUs counts in milli-GPU, rounded down; a share of something in 2^20ths, rounded down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from gpu import enforcement
from gpu.request import MigAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.assumed.slow_nodes import Doubt
from scheduler.core.devices.device_choice import choose_answered
from scheduler.core.devices.device_fit import cards_hold, largest_mib, rule_of
from scheduler.core.devices.device_pools import NOWHERE, pools_of
from scheduler.core.filters.registry import OK
from scheduler.core.model.records import PodClass
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.nodes.table import (
    CPU,
    GPUS,
    LEFT_BITS,
    LEFT_MILLI,
    MEMORY,
    MILLI_PER_GPU,
    PODS,
    Bools,
    Int64s,
    Selection,
    Table,
)
from scheduler.core.snapshot.node_mask import NodeMask
from scheduler.core.snapshot.statement import Statement

_EVERYWHERE: Final = slice(None)
_WHOLE: Final = 1 << 20
_NANO_PER_MILLI: Final = NANO_PER_DEVICE // MILLI_PER_GPU

#: Holds LEFT_MILLI, which is cut to that (table.py).
_MILLI_BITS: Final = LEFT_BITS
#: Room for 127 devices of one pod; of those to be opened 31 are told apart.
_NANO_BITS: Final = 37
_MOST_OPENED: Final = 31
_OPENED_SHIFT: Final = _NANO_BITS + _MILLI_BITS
#: A bit that no rank has.
_LAST: Final = 1 << 62
_HAS_GPU_BIT: Final = 60


class Ranking:
    """The rank of every node for one class, kept up to date with the charges of a statement."""

    __slots__ = (
        "_amounts",
        "_largest_mib",
        "_own",
        "_pools",
        "_preferred",
        "_rank_one_kind",
        "_reservation_asks",
        "_seen",
        "_trial",
        "_usable",
        "asks",
        "cls",
        "eligible",
        "keys",
        "known",
        "rule",
        "strategy",
    )

    def __init__(self, statement: Statement, cls: PodClass, settings: Settings) -> None:
        self._trial = statement
        self.cls = cls
        self.asks = cls.request.shared
        #: Judgement per position (filters/registry.py).
        self.eligible = statement.admitting(cls)
        resources = statement.table.resources
        #: Whether every resource asked is one that some node has.
        self.known = all(name in resources for name, _ in cls.demand.extended)
        self._amounts = statement.amounts(cls.demand)
        self._own = dict(self._amounts)
        reservation = ((CPU, settings.reservation_cpu_milli), (MEMORY, settings.reservation_mem_mib), (PODS, 1))
        asked = self._own
        #: Resource, the pod's own ask, what each device to be opened adds to it.
        self._reservation_asks = [(row, asked.get(row, 0), more) for row, more in reservation if more]
        self._largest_mib = largest_mib(self.asks)
        self._usable = (self.eligible == OK) & self.known
        #: Its shares by the kind of device.
        self._pools = pools_of(self.asks, statement)
        for pool in self._pools:
            self._usable &= pool.is_there(statement.table)
        self._preferred = self._enforcing()
        #: How it chooses devices, and nodes by their devices.
        self.rule = rule_of(cls)
        self.strategy = _strategy(cls, settings)
        self._rank_one_kind = self._choose_kind(settings)
        self._seen = len(statement.touched)
        self.keys: Int64s = self._rank(_EVERYWHERE)

    def _enforcing(self) -> Bools | None:
        """Nodes that enforce all that the class wishes; None where that makes no difference."""
        wished = enforcement.needed(self.cls.wishes)
        if not wished or self.cls.constraints.enforced:
            return None
        there: Bools = self._trial.eligible(msgspec.structs.replace(self.cls.constraints, enforced=wished)) == OK
        return there if there.any() else None

    def _choose_kind(self, settings: Settings) -> Callable[[_Look], Int64s]:
        if self.strategy is Strategy.SPREAD and any(ask.profile for ask in self.asks):
            return self._by_slices_left
        by_gpu = bool(self.asks or self.cls.demand.gpus)
        if by_gpu and self.strategy is Strategy.SPREAD:
            return _by_gpus_left
        if self.asks:
            return _by_tightest_devices
        if by_gpu:
            return _by_whole_gpus
        by_cpu = _by_cpu_left if settings.cpu_strategy is Strategy.SPREAD else _by_cpu
        has_mig = any(isinstance(ask, MigAsk) for c in self.cls.request.containers for ask in c.asks)
        return by_cpu if has_mig else lambda look: by_cpu(look) | _has_gpus(look)

    def best(self, mask: NodeMask = None) -> int | None:
        """Position of the first node in rank, None if the class fits nowhere."""
        self._catch_up()
        keys = self.keys
        if not len(keys):
            return None
        if mask is not None:
            keys = np.where(mask, keys, NOWHERE)
        position = int(keys.argmin())
        least = keys[position]
        if least == NOWHERE:
            return None
        if self._preferred is None or self._preferred[position]:
            return position
        equals = np.flatnonzero(self._preferred & (keys == least))
        return int(equals[0]) if len(equals) else position

    def strike(self, position: int) -> None:
        """Take a node out until it is charged again: a closer look found that the class doesn't fit."""
        self.keys[position] = NOWHERE

    def in_use(self) -> list[int]:
        """Positions where the class may be and has room, and some share of it would fit on a device that is shared."""
        look = _Look(self._trial.table, _EVERYWHERE)
        ok = self._usable.copy()
        for row, amount in self._amounts:
            ok &= look.free[row] >= amount
        opened = sum(pool.tightest(self._trial.table, _EVERYWHERE)[0] for pool in self._pools)
        return np.flatnonzero(ok & (opened < len(self.asks))).tolist()

    def has_to_open(self, position: int, count: int) -> bool:
        """Rank a node by the devices that a closer look found to be opened there; whether they are more than counted.

        Only where nodes are ranked by that: the order among all others would not change.
        """
        if self._rank_one_kind is not _by_tightest_devices:
            return False
        counted = int(self.keys[position]) >> _OPENED_SHIFT & _MOST_OPENED
        more = min(count, _MOST_OPENED) - counted
        if more > 0:
            self.keys[position] += more << _OPENED_SHIFT
        return more > 0

    def _catch_up(self) -> None:
        touched = self._trial.touched
        if self._seen == len(touched):
            return
        positions = set(touched[self._seen :])
        self._seen = len(touched)
        if len(positions) * 8 > len(self.keys):
            self.keys = self._rank(_EVERYWHERE)
        else:
            selection = np.fromiter(positions, np.int64, len(positions))
            self.keys[selection] = self._rank(selection)

    def _rank(self, selection: Selection) -> Int64s:
        look = _Look(self._trial.table, selection)
        ok = self._usable[selection].copy()
        for row, amount in self._amounts:
            ok &= look.free[row] >= amount
        if self.cls.attached:
            ok &= self._trial.attaching.fits(self.cls.attached, selection)
        if self.asks:
            self._narrow(ok, look, selection)
        keys = self._rank_one_kind(look)
        keys[~ok] = NOWHERE
        if self.asks:
            for position, doubt in self._trial.doubts.items():
                self._put_last(keys, selection, position, doubt)
        return keys

    def _put_last(self, keys: Int64s, selection: Selection, position: int, doubt: Doubt) -> None:
        """Rank a node that owes an answer, if it is among those looked at."""
        at = np.array([position]) if isinstance(selection, slice) else np.flatnonzero(selection == position)
        devices, node = self._trial.table.devices[position], self._trial.nodes[position]
        if not len(at) or choose_answered(self.asks, devices, node, strategy=self.strategy, rule=self.rule) is not None:
            return
        keys[at] = NOWHERE if doubt is Doubt.PROBED else keys[at] | _LAST

    def _by_slices_left(self, look: _Look) -> Int64s:
        """The emptiest node by its slices of the kinds that are asked."""
        left = np.zeros(look.free.shape[1], np.int64)
        for pool in self._pools:
            whole = np.maximum(pool.spare(self._trial.table, look.selection, {}), 0) * MILLI_PER_GPU
            left += whole + pool.left_nano(self._trial.table, look.selection) // _NANO_PER_MILLI
        keys: Int64s = _WHOLE - np.minimum(left, _WHOLE)
        return keys

    def _narrow(self, ok: Bools, look: _Look, selection: Selection) -> None:
        """Leave only nodes that have the devices, open or to be opened, and what their reservations need."""
        table, own = self._trial.table, self._own
        opened, look.tightest = self._pools[0].tightest(table, selection)
        ok &= self._pools[0].spare(table, selection, own) >= opened
        for pool in self._pools[1:]:
            others, tight = pool.tightest(table, selection)
            ok &= pool.spare(table, selection, own) >= others
            opened, look.tightest = opened + others, look.tightest + tight
        look.opened = opened
        for row, asked, more in self._reservation_asks:
            ok &= (opened == 0) | (look.free[row] >= asked + opened * more)
        if self._largest_mib:
            ok &= (opened == 0) | cards_hold(table, selection, self._largest_mib)


def _strategy(cls: PodClass, settings: Settings) -> Strategy:
    """How a class is spread or packed. One that excludes devices is packed, since it may open none for that."""
    if cls.not_uuids:
        return Strategy.BINPACK
    return Strategy(cls.strategy) if cls.strategy else settings.gpu_strategy


class _Look:
    """The table over the nodes that are ranked. ``opened`` and ``tightest``: see device_pools.py."""

    __slots__ = ("_table", "free", "opened", "selection", "tightest")

    def __init__(self, table: Table, selection: Selection) -> None:
        self._table = table
        self.selection = selection
        self.free = table.free[:, selection]
        self.opened = self.tightest = _NO_DEVICES

    def total(self, row: int) -> Int64s:
        """What the nodes have of a resource."""
        return self._table.total[row, self.selection]

    def fact(self, row: int) -> Int64s:
        """One of the table's extra rows."""
        return self._table.extra[row, self.selection]


_NO_DEVICES: Final = np.zeros(0, np.int64)


def _by_tightest_devices(look: _Look) -> Int64s:
    ranked = np.minimum(look.opened, _MOST_OPENED)
    keys: Int64s = (((ranked << _NANO_BITS) | look.tightest) << _MILLI_BITS) | look.fact(LEFT_MILLI)
    return keys


def _by_whole_gpus(look: _Look) -> Int64s:
    keys: Int64s = (np.maximum(look.free[GPUS], 0) << _MILLI_BITS) | look.fact(LEFT_MILLI)
    return keys


def _by_gpus_left(look: _Look) -> Int64s:
    keys: Int64s = _WHOLE - look.fact(LEFT_MILLI) * _WHOLE // (np.maximum(look.total(GPUS), 1) * MILLI_PER_GPU)
    return keys


def _by_cpu(look: _Look) -> Int64s:
    keys: Int64s = np.maximum(look.free[CPU], 0)
    return keys


def _by_cpu_left(look: _Look) -> Int64s:
    keys: Int64s = _WHOLE - np.maximum(look.free[CPU], 0) * _WHOLE // np.maximum(look.total(CPU), 1)
    return keys


def _has_gpus(look: _Look) -> Int64s:
    keys: Int64s = (look.total(GPUS) > 0).astype(np.int64) << _HAS_GPU_BIT
    return keys
