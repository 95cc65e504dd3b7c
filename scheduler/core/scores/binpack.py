"""Binpack: onto what is in use already, so that whole devices and whole nodes stay free (kai-contract 4.4).

- Shares: the least nano-GPU left on the tightest devices that fit, then what is left of the node's GPUs. Before both
  comes how many devices have to be opened (``opens_last``).
- Whole GPUs: whole devices free, then what is left of the node's GPUs.
- CPU only: milli-CPU free.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.core.nodes.table import CPU, GPUS, LEFT_BITS, LEFT_MILLI, Int64s
from scheduler.core.scores.score import Look, Score, Wanted

#: What is left of a node's GPUs in milli-GPU is below this (table.py).
_LEFT_END: Final = 1 << LEFT_BITS


class Binpack:
    """The fullest node, and the tightest device on it."""

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
