"""Which node next: one number a node and class, the smallest wins, NOWHERE if the class doesn't fit.

The numbers of a class are computed once for all nodes and then again only for nodes that were charged since, so that
the ten-thousandth pod costs no look over ten thousand nodes (python-stack 8, incremental form).

The order (kai-contract 4.4, made exact), smaller first, then by node name:

- shares, binpack: devices that would have to be opened; nano left on the tightest devices that fit; what is left of
  the node's GPUs. Spread: the emptiest node by share of its GPUs.
- whole GPUs, binpack: whole devices free, what is left of the node's GPUs. Spread: as above.
- CPU only: nodes without GPUs first; binpack: milli-CPU free; spread: the emptiest by share of its CPU.

What is left of a node's GPUs counts in milli-GPU, rounded down; a share of something in 2^20ths, rounded down.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from gpu.request import FractionAsk, MigAsk, SharedAsk
from scheduler.core.eligibility import OK
from scheduler.core.records import PodClass
from scheduler.core.settings import Settings, Strategy
from scheduler.core.table import CPU, GPUS, LARGEST_CARD, MEMORY, MIG, PODS, SHARED_FREE, Int64s
from scheduler.core.trial import Trial

Bools = npt.NDArray[np.bool_]
#: All positions, or some.
Selection = slice | Int64s

NOWHERE: Final = np.iinfo(np.int64).max
_EVERYWHERE: Final = slice(None)
_NANO_PER_MILLI: Final = 1_000_000
_MILLI_PER_GPU: Final = 1_000
_WHOLE: Final = 1 << 20

_MILLI_BITS: Final = 20
#: Room for 127 devices of one pod; of those to be opened 63 are told apart.
_NANO_BITS: Final = 37
_MOST_OPENED: Final = 63
#: A billion cores: so that a share of it can be computed in 64 bits.
_MOST_CPU_MILLI: Final = 1 << 40
_HAS_GPU_BIT: Final = 60


class Ranking:
    """The rank of every node for one class, kept up to date with the charges of a trial."""

    __slots__ = ("_amounts", "_asks", "_cls", "_seen", "_settings", "_trial", "eligible", "keys", "known")

    def __init__(self, trial: Trial, cls: PodClass, settings: Settings) -> None:
        self._trial = trial
        self._cls = cls
        self._settings = settings
        self._asks = cls.request.shared
        #: Judgement per position (eligibility.py).
        self.eligible = trial.eligible(cls.constraints)
        resources = trial.table.resources
        #: Whether every resource asked is one that some node has.
        self.known = all(name in resources for name, _ in cls.demand.extended)
        amounts = trial.amounts(cls.demand).tolist()
        self._amounts = [(row, amount) for row, amount in enumerate(amounts) if amount]
        self._seen = len(trial.touched)
        self.keys: Int64s = self._rank(_EVERYWHERE)

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
        return position if keys[position] != NOWHERE else None

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
        ok = self.eligible[selection] == OK
        if not self.known:
            ok[:] = False
        free = self._trial.table.free
        for row, amount in self._amounts:
            ok &= free[row, selection] >= amount
        if self._asks:
            keys = self._rank_shares(selection, ok)
        elif self._cls.demand.gpus:
            keys = self._rank_whole(selection)
        else:
            keys = self._rank_cpu(selection)
        keys[~ok] = NOWHERE
        return keys

    def _rank_shares(self, selection: Selection, ok: Bools) -> Int64s:
        """Rank for shares; ``ok`` is narrowed to nodes that have the devices, open or to be opened."""
        table = self._trial.table
        opened, tightest = tightest_devices(self._trial, self._asks, selection)
        free, settings = table.free, self._settings
        ok &= table.extra[MIG, selection] == 0
        gpus = self._cls.demand.gpus
        ok &= free[GPUS, selection] - gpus >= opened
        ok &= (opened == 0) | (free[PODS, selection] > opened)
        for row, amount in ((CPU, settings.reservation_cpu_milli), (MEMORY, settings.reservation_mem_mib)):
            if amount:
                asked = dict(self._amounts).get(row, 0)
                ok &= (opened == 0) | (free[row, selection] >= asked + opened * amount)
        largest = max((ask.mem_mib for ask in self._asks if not isinstance(ask, FractionAsk)), default=0)
        if largest:
            ok &= (opened == 0) | (table.extra[LARGEST_CARD, selection] >= largest)
        if settings.gpu_strategy is Strategy.SPREAD:
            return self._emptiest(selection)
        left = self._left_milli(selection)
        ranked = np.minimum(opened, _MOST_OPENED)
        keys: Int64s = (((ranked << _NANO_BITS) | tightest) << _MILLI_BITS) | left
        return keys

    def _rank_whole(self, selection: Selection) -> Int64s:
        if self._settings.gpu_strategy is Strategy.SPREAD:
            return self._emptiest(selection)
        whole = np.clip(self._trial.table.free[GPUS, selection], 0, _WHOLE)
        keys: Int64s = (whole << _MILLI_BITS) | self._left_milli(selection)
        return keys

    def _rank_cpu(self, selection: Selection) -> Int64s:
        table = self._trial.table
        free = np.clip(table.free[CPU, selection], 0, _MOST_CPU_MILLI)
        keys = free
        if self._settings.cpu_strategy is Strategy.SPREAD:
            keys = _WHOLE - free * _WHOLE // np.clip(table.total[CPU, selection], 1, _MOST_CPU_MILLI)
        if not any(isinstance(ask, MigAsk) for c in self._cls.request.containers for ask in c.asks):
            keys = keys | ((table.total[GPUS, selection] > 0).astype(np.int64) << _HAS_GPU_BIT)
        return keys.copy()

    def _emptiest(self, selection: Selection) -> Int64s:
        total = np.clip(self._trial.table.total[GPUS, selection], 1, _WHOLE) * _MILLI_PER_GPU
        keys: Int64s = _WHOLE - self._left_milli(selection) * _WHOLE // total
        return keys

    def _left_milli(self, selection: Selection) -> Int64s:
        """What is left of the node's GPUs, whole and in parts."""
        table = self._trial.table
        whole = np.clip(table.free[GPUS, selection], 0, _WHOLE) * _MILLI_PER_GPU
        left: Int64s = np.minimum(whole + table.extra[SHARED_FREE, selection] // _NANO_PER_MILLI, _WHOLE - 1)
        return left


def tightest_devices(trial: Trial, asks: tuple[SharedAsk, ...], selection: Selection) -> tuple[Int64s, Int64s]:
    """Per node: devices that have to be opened, and the sum of nano free on the tightest devices that fit.

    Exact for equal asks. For unequal ones each is looked at as if it were alone, which can only be too hopeful: the
    choice of devices (placing.py) has the last word.
    """
    if all(ask == asks[0] for ask in asks):
        return _equal_asks(trial, asks[0], len(asks), selection)
    each = [_equal_asks(trial, ask, 1, selection) for ask in asks]
    most = np.maximum.reduce([opened for opened, _ in each])
    return most, np.add.reduce([tight for _, tight in each])


def _equal_asks(trial: Trial, ask: SharedAsk, count: int, selection: Selection) -> tuple[Int64s, Int64s]:
    table = trial.table
    free = table.share_nano[:, selection]
    fits = free >= ask.nano if isinstance(ask, FractionAsk) else table.share_mib[:, selection] >= ask.mem_mib
    nodes = free.shape[1]
    if not len(free):
        return np.full(nodes, count, np.int64), np.zeros(nodes, np.int64)
    opened: Int64s = np.maximum(count - fits.sum(axis=0), 0)
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
