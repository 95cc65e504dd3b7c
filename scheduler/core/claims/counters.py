"""Counters that devices of a pool share: parts of one card that can be cut in several ways (KEP-4815)."""

from __future__ import annotations

from scheduler.core.claims.pools import Pool
from scheduler.core.claims.taken import Taken
from scheduler.core.model.device_record import Draws, PoolId


class CountersLeft:
    """What counters have left, in nano, less what devices in use and those chosen in this search draw."""

    __slots__ = ("_left", "_taken")

    def __init__(self, taken: Taken) -> None:
        self._taken = taken
        self._left: dict[PoolId, dict[tuple[str, str], int]] = {}

    def draw(self, pool: Pool, draws: Draws) -> bool:
        """Draw what a device needs; if a counter has too little, draw nothing."""
        left = self._of(pool)
        for name, amounts in draws:
            for counter, nano in amounts:
                left[name, counter] -= nano
        # All of the pool's counters, as kube-scheduler looks at them: one that is overdrawn closes the pool.
        if all(nano >= 0 for nano in left.values()):
            return True
        self.give_back(pool, draws)
        return False

    def give_back(self, pool: Pool, draws: Draws) -> None:
        """Take back what was drawn."""
        left = self._of(pool)
        for name, amounts in draws:
            for counter, nano in amounts:
                left[name, counter] += nano

    def _of(self, pool: Pool) -> dict[tuple[str, str], int]:
        left = self._left.get(pool.id)
        if left is None:
            left = self._left[pool.id] = {
                (name, counter): nano for name, amounts in pool.counters.items() for counter, nano in amounts.items()
            }
            used = self._taken.pool(pool.id)
            for device in used.devices():
                for name, amounts in pool.draws.get(device, ()):
                    for counter, nano in amounts:
                        left[name, counter] -= nano
        return left
