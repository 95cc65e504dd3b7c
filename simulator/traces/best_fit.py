"""Best fit as published with the openb trace: CPU and GPUs left on the node, each as a part of the largest node's.

Only to compare with; no cluster can choose it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.nodes.table import CPU, LEFT_MILLI, MILLI_PER_GPU, Int64s
from scheduler.core.scores.score import Look, Score

_LARGEST_CPU_MILLI: Final = 128_000
_LARGEST_GPU_MILLI: Final = 8_000
_PERCENT: Final = 100
_NANO_PER_MILLI: Final = NANO_PER_DEVICE // MILLI_PER_GPU


class BestFit:
    """The least left of both, in whole percent as published, and the tightest device."""

    name = "best-fit"
    opens_last = False

    def keys(self, look: Look) -> Int64s:
        """How much is left after the pod, in percent."""
        shared = sum(ask.nano for pool in look.pools for ask in pool.asks if hasattr(ask, "nano")) // _NANO_PER_MILLI
        cpu = look.free[CPU] - look.demand.cpu_milli
        gpus = look.fact(LEFT_MILLI) - look.demand.gpus * MILLI_PER_GPU - shared
        used = 2 * _LARGEST_CPU_MILLI - cpu - gpus * (_LARGEST_CPU_MILLI // _LARGEST_GPU_MILLI)
        keys: Int64s = _PERCENT - np.clip(used * _PERCENT // (2 * _LARGEST_CPU_MILLI), 0, _PERCENT)
        return keys

    def device_key(self, free_nano: int, nano: int) -> int:
        """The tightest device first."""
        del nano
        return free_nano

    def opens_rather(self, free_nano: int, nano: int) -> bool:
        """Never."""
        del free_nano, nano
        return False


BEST_FIT: Final[Score] = BestFit()
