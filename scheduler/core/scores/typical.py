"""Which GPU pods a cluster usually gets: counts of arrivals by what they ask, older ones for less.

A pod counts when it is first seen on a node, so what waits counts for nothing. Who names a node in a pod's spec can
have it counted: prices move the order of nodes only, never what fits. There are ``MOST_KINDS`` kinds at most, so that
nobody fills memory with pods that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from scheduler.core.model.pod_kind import WHOLE_MILLI, Kind, most_frequent, usual

MOST_KINDS: Final = 4_096
#: What one arrival adds: halving keeps it for ten periods.
ARRIVAL: Final = 1 << 10


class Typical(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Usual pods.

    ``pods``: how many are known. ``shares``: of sizes in milli-GPU, how often each is asked. ``gpu_milli``,
    ``cpu_milli``, ``mem_mib``: sums over usual pods, weighted alike.
    """

    pods: int = 0
    shares: Mapping[int, int] = {}
    gpu_milli: int = 0
    cpu_milli: int = 0
    mem_mib: int = 0


class Arrivals:
    """Counts of arrivals by kind."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Kind, int] = {}

    def add(self, kind: Kind) -> None:
        """Count one more."""
        self._counts[kind] = self._counts.get(kind, 0) + ARRIVAL
        if len(self._counts) > MOST_KINDS:
            self._counts = dict(most_frequent(self._counts)[: MOST_KINDS // 2])

    def halve(self) -> None:
        """A period is over: what came before counts half."""
        self._counts = {kind: count // 2 for kind, count in self._counts.items() if count > 1}

    def counts(self) -> Mapping[Kind, int]:
        """Return a copy of the counts, in parts of ``ARRIVAL``."""
        return dict(self._counts)


def typical_of(counts: Mapping[Kind, int]) -> Typical:
    """Return the usual pods of these counts."""
    total, kinds = sum(counts.values()), usual(counts)
    shares: dict[int, int] = {}
    for kind, count in kinds:
        if kind.milli < WHOLE_MILLI:
            shares[kind.milli] = shares.get(kind.milli, 0) + count * kind.devices
    return Typical(
        pods=total // ARRIVAL,
        shares=shares,
        gpu_milli=sum(kind.devices * kind.milli * count for kind, count in kinds),
        cpu_milli=sum(kind.cpu_milli * count for kind, count in kinds),
        mem_mib=sum(kind.mem_mib * count for kind, count in kinds),
    )


def moved_percent(before: Mapping[Kind, int], now: Mapping[Kind, int]) -> int:
    """Return how far the mix has moved: half of the sum of differences of parts, in percent, rounded down."""
    all_before, all_now = sum(before.values()), sum(now.values())
    if not all_before or not all_now:
        return 100 if all_before or all_now else 0
    kinds: Iterable[Kind] = before.keys() | now.keys()
    apart = sum(abs(before.get(kind, 0) * all_now - now.get(kind, 0) * all_before) for kind in kinds)
    return apart * 50 // (all_before * all_now)
