"""What came of a replay: GPUs in use by load, and pods lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from typing_extensions import override

from simulator.traces.load_curve import Point, load_curve
from simulator.traces.trace import Ask


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
