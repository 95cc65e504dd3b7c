"""About what the next pod costs on each node, for all nodes at once: where to look first, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from gpu.share import NANO_PER_DEVICE
from scheduler.core.nodes.table import CPU, GPUS, Int64s
from scheduler.core.room.columns import EMPTY
from scheduler.core.room.cost import LEAST_S, Pricing
from scheduler.core.room.counting import Counting
from scheduler.core.room.slots import least_nano

Floats = npt.NDArray[np.float64]
#: Costs are compared for each pod in parts of this.
PARTS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Estimates:
    """Of one class, as ``counting`` counts it."""

    counting: Counting
    pricing: Pricing

    def of(self, pool: Int64s) -> tuple[Iterable[tuple[int, int]], dict[int, list[int]]]:
        """For each node with units of the pool about what its next slot costs, by parts of units at the best rate.

        And its units of the pool, each once.
        """
        counting = self.counting
        place = np.full(len(counting.table.units.of["leaf"]), EMPTY, np.int64)
        place[pool] = np.arange(len(pool))
        unit, position = counting.unit, counting.position
        pods = np.flatnonzero((unit != EMPTY) & (position >= 0) & (place[unit] != EMPTY))
        pods = pods[counting.where[position[pods]]]
        if not len(pods):
            return [], {}
        size, rate = self._sizes(pods), self._rates(unit[pods])
        order = np.lexsort((place[unit[pods]], rate, position[pods]))
        pods, size, rate = pods[order], size[order], rate[order]
        at = position[pods]
        firsts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        where = at[firsts]
        candidates = _by_node(unit[pods], firsts, where)
        sums, costs = np.cumsum(size), np.cumsum(size * rate)
        counts = np.diff(np.r_[firsts, len(pods)])
        sums -= np.repeat(sums[firsts] - size[firsts], counts)
        costs -= np.repeat(costs[firsts] - size[firsts] * rate[firsts], counts)
        short = np.repeat(self._short(where), counts)
        enough = np.where(sums >= short, np.arange(len(pods)), len(pods))
        first = np.minimum(np.minimum.reduceat(enough, firsts), np.r_[firsts[1:], len(pods)] - 1)
        least = costs[first] - np.maximum(0, sums[first] - short[firsts]) * rate[first]
        # Where even all units are too few by their sizes, nothing is to be had; the statement says so of the others.
        last = np.r_[firsts[1:], len(pods)] - 1
        some = (sums[last] >= short[firsts]) | (counting.tenants.odd | counting.tenants.shared)[where]
        where, least = where[some], least[some]
        costs_of = (np.maximum(least, 0) * PARTS).astype(np.int64)
        return zip(where.tolist(), costs_of.tolist(), strict=True), candidates

    def _by_gpu(self) -> bool:
        way = self.counting.way
        return bool(way.demand.gpus or way.request.shared)

    def _sizes(self, pods: Int64s) -> Floats:
        """How large pods are in what is asked first: GPUs, or CPU."""
        sizes: Floats = self.counting.table.pods.of["gpu" if self._by_gpu() else "cpu"][pods].astype(np.float64)
        return sizes

    def _rates(self, units: Int64s) -> Floats:
        """What units cost for each part of what is asked: near enough to say where to look first."""
        of = self.counting.table.units.of
        wall_s = self.pricing.wall_s
        ages = np.maximum(LEAST_S, wall_s - np.where(of["started_s"][units] > 0, of["started_s"][units], wall_s))
        gpus = float(self.pricing.total.gpu_nano or NANO_PER_DEVICE)
        shares = [
            of[name][units] * (gpus / has) if has else np.zeros(len(units))
            for name, has in zip(("cpu", "mem", "gpu"), self.pricing.total, strict=True)
        ]
        size = of["gpu" if self._by_gpu() else "cpu"][units]
        rates: Floats = np.maximum.reduce(shares) * ages / np.maximum(size, 1) / NANO_PER_DEVICE
        return rates

    def _short(self, where: Int64s) -> Floats:
        """How much of that each node lacks for its next pod."""
        way, free = self.counting.way, self.counting.trial.statement.table.free
        if way.request.shared:
            return np.full(len(where), max(1, min(map(least_nano, way.request.shared))), np.float64)
        row, amount = (GPUS, way.demand.gpus) if way.demand.gpus else (CPU, max(1, way.demand.cpu_milli))
        lacks = amount - np.maximum(free[row, where], 0) % amount
        lacking: Floats = lacks * float(NANO_PER_DEVICE if row == GPUS else 1)
        return lacking


def _by_node(units: Int64s, firsts: Int64s, where: Int64s) -> dict[int, list[int]]:
    """Units by node, each once; ``firsts``: where those of each node begin."""
    parts = zip(where.tolist(), np.split(units, firsts[1:]), strict=True)
    return {position: list(dict.fromkeys(part.tolist())) for position, part in parts}
