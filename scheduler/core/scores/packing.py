"""Binpack and Spread, KAI's two strategies (kai-contract 4.4)."""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.nodes.table import CPU, GPUS, LEFT_BITS, LEFT_MILLI, MILLI_PER_GPU, Int64s
from scheduler.core.scores.score import PARTS, Look, Score, Wanted

#: What is left of a node's GPUs in milli-GPU is below this (table.py).
_LEFT_END: Final = 1 << LEFT_BITS


class Binpack:
    """Places onto what is in use already, so that whole devices and whole nodes stay free.

    The least comes first of these:

    - Shares: the nano-GPU left on the tightest devices that fit, then what is left of the node's GPUs. Before both
      comes how many devices have to be opened (``opens_last``).
    - Whole GPUs: whole devices free, then what is left of the node's GPUs.
    - CPU only: milli-CPU free.
    """

    name = "binpack"
    opens_last = True

    def keys(self, look: Look) -> Int64s:
        """What is left where the class would go."""
        if look.wanted is Wanted.CPU:
            keys: Int64s = np.maximum(look.free[CPU], 0)
            return keys
        first = look.tightest if look.wanted is Wanted.SHARES else np.maximum(look.free[GPUS], 0)
        return first * _LEFT_END + look.fact(LEFT_MILLI)

    def device_key(self, free_nano: int, nano: int) -> int:
        """The tightest device first."""
        del nano
        return free_nano

    def opens_rather(self, free_nano: int, nano: int) -> bool:
        """Never: a device is opened only if no shared one holds the ask."""
        del free_nano, nano
        return False


BINPACK: Final[Score] = Binpack()


_NANO_PER_MILLI: Final = NANO_PER_DEVICE // MILLI_PER_GPU


class Spread:
    """Places onto what is free, so that tenants disturb each other least; a device that is not shared yet counts, too.

    - GPUs, whole or in parts: the emptiest node by what is left of its GPUs.
    - Shares of MIG slices: the node with the most slices left of the kinds that are asked.
    - CPU only: the emptiest node by its CPU.
    """

    name = "spread"
    opens_last = False

    def keys(self, look: Look) -> Int64s:
        """How full the node is."""
        if look.wanted is Wanted.CPU:
            keys: Int64s = PARTS - np.maximum(look.free[CPU], 0) * PARTS // np.maximum(look.total(CPU), 1)
            return keys
        if any(pool.profile for pool in look.pools):
            return _by_slices(look)
        by_gpus: Int64s = PARTS - look.fact(LEFT_MILLI) * PARTS // (np.maximum(look.total(GPUS), 1) * MILLI_PER_GPU)
        return by_gpus

    def device_key(self, free_nano: int, nano: int) -> int:
        """The emptiest device first."""
        del nano
        return -free_nano

    def opens_rather(self, free_nano: int, nano: int) -> bool:
        """A used device is shared only if none can be opened; an idle one is as empty, and there already."""
        del nano
        return free_nano < NANO_PER_DEVICE


def _by_slices(look: Look) -> Int64s:
    left = np.zeros(look.free.shape[1], np.int64)
    for pool in look.pools:
        whole = np.maximum(pool.spare(look.table, look.selection, {}), 0) * MILLI_PER_GPU
        left += whole + pool.left_nano(look.table, look.selection) // _NANO_PER_MILLI
    keys: Int64s = PARTS - np.minimum(left, PARTS)
    return keys


SPREAD: Final[Score] = Spread()
