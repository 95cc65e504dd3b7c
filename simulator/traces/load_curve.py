"""GPUs in use over the load that has arrived, as the published results count them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

_PERCENT: Final = 100


class Point(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """At a load in percent of all GPUs, the GPUs in use in hundredths of a percent: the mean over its arrivals."""

    load_percent: int
    used_e4: int

    @property
    def used_percent(self) -> float:
        """For people."""
        return self.used_e4 / _PERCENT


def load_curve(arrived_milli: Sequence[int], used_milli: Sequence[int], capacity_milli: int) -> tuple[Point, ...]:
    """Return a point for each load that some arrival brought, rising.

    ``arrived_milli``, ``used_milli``: after each arrival, the GPUs asked so far and those in use.
    """
    sums: dict[int, tuple[int, int]] = {}
    for arrived, used in zip(arrived_milli, used_milli, strict=True):
        load = (2 * _PERCENT * arrived + capacity_milli) // (2 * capacity_milli)
        total, count = sums.get(load, (0, 0))
        sums[load] = total + used, count + 1
    return tuple(
        Point(load, (2 * total * _PERCENT**2 + count * capacity_milli) // (2 * count * capacity_milli))
        for load, (total, count) in sorted(sums.items())
    )


def at_load(curve: Sequence[Point], load_percent: int) -> Point | None:
    """Return the point at a load, or the nearest within one percent; None if the arrivals do not get there."""
    near = [point for point in curve if abs(point.load_percent - load_percent) <= 1]
    return min(near, key=lambda point: abs(point.load_percent - load_percent), default=None)
