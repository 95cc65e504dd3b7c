"""Capacity of nodes: a pod that asks more than any node has in all fits nowhere, with all other pods gone.

So an answer that rests on that holds until a node has another capacity (docs/design/room.md). The check is never too
strict: rules about nodes, devices that differ and slices are left out, as they only ever make a pod fit on fewer nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from typing_extensions import override

from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.table import GPUS, Int64s

#: As many as nobody asks for.
_MANY: Final = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """``total``: by resource and row of the ledger; ``devices``: by row, as many as a node has or may ever have shared.

    ``version``: another number whenever one of these is another one.
    """

    version: int
    total: Int64s
    devices: Int64s

    @classmethod
    def of(cls, ledger: Ledger, before: Self | None = None) -> Self:
        """Return what nodes have now: ``before`` itself if that is the same."""
        total = ledger.table.total
        # Devices stay shared though their node reports fewer GPUs.
        devices: Int64s = np.maximum(total[GPUS], len(ledger.table.share_nano)) * total.any(axis=0)
        if before is None:
            return cls(0, total.copy(), devices)
        if np.array_equal(before.total, total) and np.array_equal(before.devices, devices):
            return before
        return cls(before.version + 1, total.copy(), devices)

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Capacity):
            return NotImplemented
        alike = np.array_equal(self.total, other.total) and np.array_equal(self.devices, other.devices)
        return self.version == other.version and alike

    @override
    def __hash__(self) -> int:
        return hash(self.version)

    def may_hold(self, ledger: Ledger, wanted: PodClass) -> bool:
        """Whether a node may have what a pod of a class asks, with nobody else there, as far as these sums tell."""
        return any(self._may_hold(ledger, way) for way in wanted.ways())

    def _may_hold(self, ledger: Ledger, way: PodClass) -> bool:
        if not all(name in ledger.table.resources for name, _ in way.demand.extended):
            return False
        asked = ledger.amounts(way.demand, pods=1)
        enough = (self.total >= asked[:, None]).all(axis=0)
        asks = way.request.shared
        return bool((enough & (self.devices * self._parts(asks) >= len(asks))).any())

    def _parts(self, asks: tuple[SharedAsk, ...]) -> int:
        """How many of the smallest part that is asked one device holds."""
        smallest = min(map(_least_nano, asks), default=0)
        return NANO_PER_DEVICE // smallest if smallest > 0 else _MANY


def _least_nano(ask: SharedAsk) -> int:
    """The least that it takes of a card; 0 where that says nothing: of slices, and memory of cards of any size."""
    return ask.nano if isinstance(ask, FractionAsk) and not ask.profile else 0
