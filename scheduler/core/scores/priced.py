"""Priced: where the node loses the least of what it is still good for (docs/packing.md).

A node is worth the least of three: its free GPUs, piece by piece; what its free CPU can serve; what its free memory can
serve (prices.py). A pod goes where that worth falls least. So a share takes the piece that is worth no more without it,
pods that ask little CPU go where CPU is short, and pods without GPUs where CPU is to spare. Of nodes that lose the same
the one with the least GPUs left comes first, and where there are none, that with the least CPU, as with binpack: so
whole nodes stay free. Then the first by name; of devices the tightest.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.devices.device_fit import NOWHERE, fitting, free_in_slots
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.pod_kind import WHOLE_MILLI
from scheduler.core.nodes.table import CPU, GPUS, LARGEST_CARD, LEFT_MILLI, MEMORY, MILLI_PER_GPU, Int64s
from scheduler.core.scores.packing import BINPACK
from scheduler.core.scores.prices import MIB_PER_GIB, MILLI_PER_CORE, Prices
from scheduler.core.scores.score import KEY_END, NO_DEMAND, Look, Score, Wanted

_NANO_PER_MILLI: Final = NANO_PER_DEVICE // WHOLE_MILLI
#: Worth is counted in parts of a nano-GPU, that many bits: losses are exact, so nodes that lose the same are equal.
_PART_BITS: Final = 10
#: More than all devices of a node are worth, below what overflows when multiplied by a price.
_MOST: Final = 1 << 61
#: A card of more memory counts as one of this.
_MOST_MIB: Final = 1 << 30
#: The bits of a key, below the loss, for what is left of a node, in eighths of GPUs or quarters of cores.
_FULLNESS_BITS: Final = 10
_LOSS_END: Final = KEY_END >> _FULLNESS_BITS
_EIGHTH_MILLI: Final = MILLI_PER_GPU // 8
_QUARTER_MILLI: Final = MILLI_PER_CORE // 4


class Priced:
    """The least loss of worth, of nodes and of devices, by prices that do not change during a decision."""

    __slots__ = ("_limits", "_prices", "_rates", "_rows", "_whole", "_worth")

    name = "priced"
    opens_last = False

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._worth: Int64s = np.array(prices.pieces_nano, np.int64) << _PART_BITS
        self._whole = prices.pieces_nano[WHOLE_MILLI] << _PART_BITS
        cpu = (prices.core_nano << _PART_BITS) // MILLI_PER_CORE
        memory = (prices.gib_nano << _PART_BITS) // MIB_PER_GIB
        priced = [(row, rate) for row, rate in ((CPU, cpu), (MEMORY, memory)) if rate]
        #: Resources that have a price; what an amount of 1 can serve; amounts beyond which more makes no difference.
        self._rows = [row for row, _ in priced]
        self._rates: Int64s = np.array([[rate] for _, rate in priced], np.int64)
        self._limits: Int64s = np.array([[_MOST // rate] for _, rate in priced], np.int64)

    # --- nodes ---------------------------------------------------------------------------------------------------
    def keys(self, look: Look) -> Int64s:
        """What each node loses."""
        gpus, lost = self._shares(look) if look.pools else (self._cards(look), 0)
        demand = look.demand
        left = np.maximum(gpus - (lost + demand.gpus * self._whole), 0)
        if self._rows:
            gpus = np.minimum(gpus, self._served(look, NO_DEMAND))
            left = np.minimum(left, self._served(look, demand))
        keys: Int64s = np.minimum(np.maximum(gpus - left, 0), _LOSS_END - 1)
        keys <<= _FULLNESS_BITS
        keys += _fullness(look)
        return keys

    def _served(self, look: Look, taken: Demand) -> Int64s:
        """The GPUs that CPU and memory of each node can serve once so much is taken."""
        asked = {CPU: taken.cpu_milli, MEMORY: taken.mem_mib}
        amounts = look.free[self._rows]
        for number, row in enumerate(self._rows):
            if asked[row]:
                amounts[number] -= min(asked[row], _MOST)
        np.maximum(amounts, 0, out=amounts)
        np.minimum(amounts, self._limits, out=amounts)
        amounts *= self._rates
        served: Int64s = amounts.min(axis=0)
        return served

    def _cards(self, look: Look) -> Int64s:
        """What the free GPUs of each node are worth."""
        free = free_in_slots(look.table, look.selection, None)
        worth: Int64s = self._worth.take(np.maximum(free, 0) // _NANO_PER_MILLI).sum(axis=0)
        worth += np.maximum(look.free[GPUS], 0) * self._whole
        return worth

    # --- shares --------------------------------------------------------------------------------------------------
    def _shares(self, look: Look) -> tuple[Int64s, Int64s]:
        """What the free devices are worth, of the kinds that are asked, and what those lose that the shares go to.

        Unequal shares are looked at as if each were alone.
        """
        worth, lost = np.zeros(look.free.shape[1], np.int64), np.zeros(look.free.shape[1], np.int64)
        whole = {GPUS: look.demand.gpus} if look.demand.gpus else {}
        for pool in look.pools:
            free = free_in_slots(look.table, look.selection, pool.rows)
            spare = np.maximum(pool.spare(look.table, look.selection, whole), 0)
            milli = np.maximum(free, 0) // _NANO_PER_MILLI
            worth += self._worth.take(milli).sum(axis=0)
            worth += (spare + look.demand.gpus) * self._whole
            for ask, count in Counter(pool.asks).items():
                losses = self._losses(look, ask, free, milli)
                opened = self._whole - self._worth[(NANO_PER_DEVICE - _opened(ask, look)) // _NANO_PER_MILLI]
                lost += _least(losses, [np.where(spare > number, opened, NOWHERE) for number in range(count)])
        return worth, lost

    def _losses(self, look: Look, ask: SharedAsk, free: Int64s, milli: Int64s) -> Int64s:
        """What each slot loses by an ask, NOWHERE if it does not hold it. ``milli``: what is free, rounded down."""
        if isinstance(ask, FractionAsk) and not ask.nano % _NANO_PER_MILLI:
            taken = ask.nano // _NANO_PER_MILLI  # the loss follows from the whole milli-GPUs that are free
            by_milli = np.full(WHOLE_MILLI + 1, NOWHERE, np.int64)
            by_milli[taken:] = self._worth[taken:] - self._worth[: WHOLE_MILLI + 1 - taken]
            return by_milli.take(milli)
        kept = np.maximum(free - _taken(ask, look, free), 0) // _NANO_PER_MILLI
        fits = fitting(ask, look.table, look.selection, free)
        losses: Int64s = np.where(fits, self._worth.take(milli) - self._worth.take(kept), NOWHERE)
        return losses

    # --- devices of one node -------------------------------------------------------------------------------------
    def device_key(self, free_nano: int, nano: int) -> int:
        """What a device loses."""
        pieces = self._prices.pieces_nano
        return pieces[free_nano // _NANO_PER_MILLI] - pieces[(free_nano - nano) // _NANO_PER_MILLI]

    def opens_rather(self, free_nano: int, nano: int) -> bool:
        """Only where a device that is not shared yet loses less than the best shared one."""
        return self.device_key(NANO_PER_DEVICE, nano) < self.device_key(free_nano, nano)


def _fullness(look: Look) -> Int64s:
    """What is left of each node's GPUs; for pods without GPUs on nodes without, of its CPU."""
    left: Int64s = look.fact(LEFT_MILLI) // _EIGHTH_MILLI
    if look.wanted is Wanted.CPU:
        left = np.where(look.total(GPUS) > 0, left, np.maximum(look.free[CPU], 0) // _QUARTER_MILLI)
    fullness: Int64s = np.minimum(left, (1 << _FULLNESS_BITS) - 1)
    return fullness


def _least(losses: Int64s, to_open: list[Int64s]) -> Int64s:
    """Of each node the sum of its least losses, as many as may be opened; 0 for those that are nowhere."""
    if len(to_open) == 1:
        least: Int64s = np.minimum(losses.min(axis=0, initial=NOWHERE), to_open[0])
        least[least == NOWHERE] = 0
        return least
    each = np.concatenate([losses, np.array(to_open)], axis=0)
    each.sort(axis=0)
    chosen = each[: len(to_open)]
    chosen[chosen == NOWHERE] = 0
    summed: Int64s = chosen.sum(axis=0)
    return summed


def _taken(ask: SharedAsk, look: Look, free: Int64s) -> Int64s | int:
    """What an ask takes of each device in nano-GPU. Of memory: as its part of what is free, which rounding blurs."""
    if isinstance(ask, FractionAsk):
        return ask.nano
    mib = np.minimum(np.maximum(look.table.share_mib[:, look.selection], 1), _MOST_MIB)
    taken: Int64s = np.minimum(ask.mem_mib, mib) * np.maximum(free, 0) // mib
    return taken


def _opened(ask: SharedAsk, look: Look) -> Int64s | int:
    """The same of a device to be opened: the node's largest."""
    if isinstance(ask, FractionAsk):
        return ask.nano
    mib = np.minimum(np.maximum(look.fact(LARGEST_CARD), 1), _MOST_MIB)
    taken: Int64s = np.minimum(ask.mem_mib, mib) * NANO_PER_DEVICE // mib
    return taken


def score_by(prices: Prices | None) -> Score:
    """Return the score by these prices. While there are none, pods go where binpack puts them."""
    return Priced(prices) if prices else BINPACK
