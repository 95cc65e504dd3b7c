"""What came of a replay: GPUs in use over the load that has arrived, as published results have it, and pods lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from typing_extensions import override

from simulator.traces.trace import Ask

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


class Strategies(msgspec.Struct, frozen=True, gc=False):
    """Names of scores: for GPUs, whole and in parts, and for pods without."""

    gpu: str
    cpu: str

    @override
    def __str__(self) -> str:
        """Return the form in which people write it."""
        return self.gpu if self.gpu == self.cpu else f"{self.gpu}/{self.cpu}"


class Run(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One seed under one strategy.

    ``lost``: pods that fitted nowhere when they came, ``lost_without_gpus`` of them ask for none. ``curve``: GPUs in
    use by load. ``differences``: where the ledger differs from a recount at the end, and invariants that did not hold.
    """

    strategy: str
    seed: int
    pods: int
    lost: int
    lost_without_gpus: int
    curve: tuple[Point, ...]
    differences: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Counts pods as they come."""

    arrived_milli: list[int] = field(default_factory=list)
    used_milli: list[int] = field(default_factory=list)
    lost: int = 0
    lost_without_gpus: int = 0

    def count(self, ask: Ask, *, is_placed: bool) -> None:
        """Count one more pod."""
        arrived = self.arrived_milli[-1] if self.arrived_milli else 0
        used = self.used_milli[-1] if self.used_milli else 0
        self.arrived_milli.append(arrived + ask.total_milli)
        self.used_milli.append(used + (ask.total_milli if is_placed else 0))
        self.lost += not is_placed
        self.lost_without_gpus += not is_placed and not ask.gpus

    def run(self, strategies: Strategies, seed: int, *, capacity_milli: int, differences: Iterable[str]) -> Run:
        """Return the result."""
        return Run(
            strategy=str(strategies),
            seed=seed,
            pods=len(self.arrived_milli),
            lost=self.lost,
            lost_without_gpus=self.lost_without_gpus,
            curve=load_curve(self.arrived_milli, self.used_milli, capacity_milli) if capacity_milli else (),
            differences=tuple(differences),
        )
