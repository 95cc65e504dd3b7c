"""Which node next: one number a node and class, the smallest wins, NOWHERE if the class doesn't fit.

The numbers of a class are computed once for all nodes and then again only for nodes that were charged since, so that
the ten-thousandth pod costs no look over ten thousand nodes.

The order (kai-contract 4.4, made exact), smaller first, then by node name:

- shares, binpack: devices that would have to be opened; nano left on the tightest devices that fit; what is left of
  the node's GPUs. Spread: the emptiest node by share of its GPUs.
- whole GPUs, binpack: whole devices free, what is left of the node's GPUs. Spread: as above.
- CPU only: nodes without GPUs first; binpack: milli-CPU free; spread: the emptiest by share of its CPU.

A node that owes an answer comes after all others for a share that would have to wait for it, too (probation.py).

Of equal ones those come first that enforce all that the class wishes, where it does not insist on that anyhow.

What is left of a node's GPUs counts in milli-GPU, rounded down; a share of something in 2^20ths, rounded down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from gpu import enforcement
from gpu.request import FractionAsk, MemoryAsk, MigAsk, SharedAsk
from scheduler.core.devices import choose_answered, rule_of
from scheduler.core.eligibility import OK
from scheduler.core.probation import Doubt
from scheduler.core.records import PodClass
from scheduler.core.settings import Settings, Strategy
from scheduler.core.table import (
    CPU,
    GPUS,
    LARGEST_CARD,
    LEFT_BITS,
    LEFT_MILLI,
    MEMORY,
    MIG,
    MILLI_PER_GPU,
    MULTIPLIED,
    PODS,
    Int64s,
    Table,
)
from scheduler.core.trial import Trial

Bools = npt.NDArray[np.bool_]
#: All positions, or some.
Selection = slice | Int64s

NOWHERE: Final = np.iinfo(np.int64).max
_EVERYWHERE: Final = slice(None)
_WHOLE: Final = 1 << 20

#: Holds LEFT_MILLI, which is cut to that (table.py).
_MILLI_BITS: Final = LEFT_BITS
#: Room for 127 devices of one pod; of those to be opened 31 are told apart.
_NANO_BITS: Final = 37
_MOST_OPENED: Final = 31
#: A bit that no rank has.
_LAST: Final = 1 << 62
_HAS_GPU_BIT: Final = 60


class Ranking:
    """The rank of every node for one class, kept up to date with the charges of a trial."""

    __slots__ = (
        "_amounts",
        "_largest_mib",
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

    def __init__(self, trial: Trial, cls: PodClass, settings: Settings) -> None:
        self._trial = trial
        self.cls = cls
        self.asks = cls.request.shared
        #: Judgement per position (eligibility.py).
        self.eligible = trial.eligible(cls.constraints)
        resources = trial.table.resources
        #: Whether every resource asked is one that some node has.
        self.known = all(name in resources for name, _ in cls.demand.extended)
        self._amounts = trial.amounts(cls.demand)
        reservation = ((CPU, settings.reservation_cpu_milli), (MEMORY, settings.reservation_mem_mib), (PODS, 1))
        asked = dict(self._amounts)
        #: Resource, the pod's own ask, what each device to be opened adds to it.
        self._reservation_asks = [(row, asked.get(row, 0), more) for row, more in reservation if more]
        self._largest_mib = max((ask.mem_mib for ask in self.asks if not isinstance(ask, FractionAsk)), default=0)
        self._usable = (self.eligible == OK) & self.known
        if self.asks:
            self._usable &= (trial.table.extra[MIG] == 0) & (trial.table.extra[MULTIPLIED] == 0)
        self._preferred = self._enforcing()
        #: How it chooses devices, and nodes by their devices.
        self.rule = rule_of(cls)
        self.strategy = Strategy(cls.strategy) if cls.strategy else settings.gpu_strategy
        self._rank_one_kind = self._choose_kind(settings)
        self._seen = len(trial.touched)
        self.keys: Int64s = self._rank(_EVERYWHERE)

    def _enforcing(self) -> Bools | None:
        """Nodes that enforce all that the class wishes; None where that makes no difference."""
        wished = enforcement.needed(self.cls.wishes)
        if not wished or self.cls.constraints.enforced:
            return None
        there: Bools = self._trial.eligible(msgspec.structs.replace(self.cls.constraints, enforced=wished)) == OK
        return there if there.any() else None

    def _choose_kind(self, settings: Settings) -> Callable[[_Look], Int64s]:
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

    def best(self, without: frozenset[str] = frozenset()) -> int | None:
        """Position of the first node in rank, None if the class fits nowhere. ``without`` names nodes that are out."""
        self._catch_up()
        keys = self.keys
        if not len(keys):
            return None
        if without:
            keys = keys.copy()
            keys[[p for name in without if (p := self._trial.position_of.get(name)) is not None]] = NOWHERE
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
        if self.asks:
            look.opened, look.tightest = tightest_devices(self._trial, self.asks, selection)
            self._narrow(ok, look)
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

    def _narrow(self, ok: Bools, look: _Look) -> None:
        """Leave only nodes that have the devices, open or to be opened, and what their reservations need."""
        opened = look.opened
        ok &= look.free[GPUS] - self.cls.demand.gpus >= opened
        for row, asked, more in self._reservation_asks:
            ok &= (opened == 0) | (look.free[row] >= asked + opened * more)
        if self._largest_mib:
            ok &= (opened == 0) | (look.fact(LARGEST_CARD) >= self._largest_mib)


class _Look:
    """The table over the nodes that are ranked. ``opened`` and ``tightest``: see ``tightest_devices``."""

    __slots__ = ("_selection", "_table", "free", "opened", "tightest")

    def __init__(self, table: Table, selection: Selection) -> None:
        self._table = table
        self._selection = selection
        self.free = table.free[:, selection]
        self.opened = self.tightest = _NO_DEVICES

    def total(self, row: int) -> Int64s:
        """What the nodes have of a resource."""
        return self._table.total[row, self._selection]

    def fact(self, row: int) -> Int64s:
        """One of the table's extra rows."""
        return self._table.extra[row, self._selection]


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


def tightest_devices(trial: Trial, asks: tuple[SharedAsk, ...], selection: Selection) -> tuple[Int64s, Int64s]:
    """Per node: devices that have to be opened, and the sum of nano free on the tightest devices that fit.

    Exact for asks in one unit: so many are at least as large as one of them, and all of these need other devices that
    hold it. A fraction and memory beside each other are looked at as if each were alone, and so is what is tightest for
    unequal asks: that can only be too hopeful, and the choice of devices (placing.py) has the last word.
    """
    if all(ask == asks[0] for ask in asks):
        return _equal_asks(trial, asks[0], len(asks), selection)
    each: list[tuple[Int64s, Int64s]] = []
    for kind in (FractionAsk, MemoryAsk):
        larger = 0
        counted = Counter(_amount(ask) for ask in asks if isinstance(ask, kind))
        for amount, count in sorted(counted.items(), reverse=True):
            each.append(_equal_asks(trial, kind(amount), count, selection, larger=larger))
            larger += count
    most = np.maximum.reduce([opened for opened, _ in each])
    return most, np.add.reduce([tight for _, tight in each])


def _amount(ask: SharedAsk) -> int:
    return ask.nano if isinstance(ask, FractionAsk) else ask.mem_mib


def _equal_asks(
    trial: Trial, ask: SharedAsk, count: int, selection: Selection, *, larger: int = 0
) -> tuple[Int64s, Int64s]:
    """The same for ``count`` asks, beside which ``larger`` ones want such devices as well."""
    table = trial.table
    free = table.share_nano[:, selection]
    fits = free >= ask.nano if isinstance(ask, FractionAsk) else table.share_mib[:, selection] >= ask.mem_mib
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
