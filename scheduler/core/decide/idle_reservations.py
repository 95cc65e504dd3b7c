"""Idle reservations as capacity for whole GPUs: which ones have to go so that a pod fits.

Only reservations with an empty book and nobody on the way are given up. Devices that are leaving already count as
well, so that a pod that waits for one does not cost a second.
"""

from __future__ import annotations

import msgspec
import numpy as np

from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes import volume_limits
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Device
from scheduler.core.scores.ranking import Ranking
from scheduler.core.snapshot.node_mask import NodeMask
from scheduler.core.snapshot.statement import Statement


class Sacrifice(msgspec.Struct, frozen=True, gc=False):
    """A node that holds the pod once ``devices`` are given back; ``owed`` counts them and those leaving already."""

    position: int
    devices: tuple[Device, ...]
    owed: int


def find_sacrifice(statement: Statement, ranking: Ranking, cls: PodClass, mask: NodeMask) -> Sacrifice | None:
    """The node where the fewest idle reservations have to go, then the smallest name; None if none would do."""
    need = cls.demand.gpus
    if not need or cls.request.is_shared or not ranking.known:
        return None
    ok = ranking.eligible == OK
    if volumes := volume_limits.coming_of_class(cls, statement.attaching.limited_driver):
        ok &= statement.attaching.fits(volumes, slice(None))
    if cls.unbound:
        ok &= statement.binding.fits(cls.unbound, slice(None))
    if cls.devices:
        ok &= statement.allocating.fits(cls.devices, slice(None))
    if mask is not None:
        ok &= mask
    free = statement.table.free
    for row, amount in statement.amounts(cls.demand):
        if row != GPUS:
            ok &= free[row] >= amount
    idle, leaving = statement.table.extra[IDLE], statement.table.extra[LEAVING]
    if cls.constraints.aligned is not None:
        # On which NUMA node a device comes back is not known: where some do, the pod is tried.
        fits = statement.aligning.fits(statement.table, cls.constraints.aligned, slice(None))
        ok &= fits | (idle > 0) | (leaving > 0)
    missing = need - free[GPUS]
    ok &= missing <= idle + leaving
    if not ok.any():
        return None
    position = int(np.where(ok, np.maximum(missing - leaving, 0), np.iinfo(np.int64).max).argmin())
    owed = int(missing[position])
    fresh = max(0, owed - int(leaving[position]))
    candidates = [device for device in statement.table.devices[position] if device.is_idle and device.is_gpu]
    return Sacrifice(position, tuple(candidates[:fresh]), owed)
