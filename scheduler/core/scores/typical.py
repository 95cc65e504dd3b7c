"""Which GPU pods a cluster usually gets: counts of arrivals by what they ask, older ones for less.

A pod counts when it is first seen on a node, so what waits counts for nothing. Who names a node in a pod's spec can
have it counted: prices move the order of nodes only, never what fits. There are ``MOST_KINDS`` kinds at most, so that
nobody fills memory with pods that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpu.request import FractionAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.records import PodRecord
from wire import names

WHOLE_MILLI: Final = 1_000
MOST_KINDS: Final = 4_096
#: What one arrival adds: halving keeps it for ten periods.
ARRIVAL: Final = 1 << 10
#: The most frequent kinds that make up so much of all pods are usual.
_USUAL_PERCENT: Final = 95


class Kind(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod asks: devices, milli-GPU of each (1,000: whole ones), CPU and memory in all."""

    devices: int
    milli: int
    cpu_milli: int
    mem_mib: int


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
            self._counts = dict(_most_frequent(self._counts)[: MOST_KINDS // 2])

    def halve(self) -> None:
        """A period is over: what came before counts half."""
        self._counts = {kind: count // 2 for kind, count in self._counts.items() if count > 1}

    def counts(self) -> Mapping[Kind, int]:
        """Return a copy of the counts, in parts of ``ARRIVAL``."""
        return dict(self._counts)


def kind_of(pod: PodRecord) -> Kind | None:
    """Return the kind of a pod on a node; None without GPUs. Unequal shares count as the largest of them.

    What a share takes is its grant; without one (KAI's) only fractions are known. Rounded down, so that three thirds
    fit one device.
    """
    demand, shares = pod.cls.demand, _shares_nano(pod)
    if demand.gpus:
        devices, milli = demand.gpus, WHOLE_MILLI
    elif shares:
        devices, milli = len(shares), max(max(shares) * WHOLE_MILLI // NANO_PER_DEVICE, 1)
    else:
        return None
    return Kind(devices, milli, demand.cpu_milli, demand.mem_mib)


def _shares_nano(pod: PodRecord) -> list[int]:
    granted = [held.nano for held in pod.held if held.nano and held.resource == names.GPU_RESOURCE]
    return granted or [ask.nano for ask in pod.cls.request.shared if isinstance(ask, FractionAsk) and not ask.profile]


def typical_of(counts: Mapping[Kind, int]) -> Typical:
    """Return the usual pods of these counts."""
    total, seen = sum(counts.values()), 0
    usual: list[tuple[Kind, int]] = []
    for kind, count in _most_frequent(counts):
        if seen * 100 >= total * _USUAL_PERCENT:
            break
        seen += count
        usual.append((kind, count))
    shares: dict[int, int] = {}
    for kind, count in usual:
        if kind.milli < WHOLE_MILLI:
            shares[kind.milli] = shares.get(kind.milli, 0) + count * kind.devices
    return Typical(
        pods=total // ARRIVAL,
        shares=shares,
        gpu_milli=sum(kind.devices * kind.milli * count for kind, count in usual),
        cpu_milli=sum(kind.cpu_milli * count for kind, count in usual),
        mem_mib=sum(kind.mem_mib * count for kind, count in usual),
    )


def moved_percent(before: Mapping[Kind, int], now: Mapping[Kind, int]) -> int:
    """Return how far the mix has moved: half of the sum of differences of parts, in percent, rounded down."""
    all_before, all_now = sum(before.values()), sum(now.values())
    if not all_before or not all_now:
        return 100 if all_before or all_now else 0
    kinds: Iterable[Kind] = before.keys() | now.keys()
    apart = sum(abs(before.get(kind, 0) * all_now - now.get(kind, 0) * all_before) for kind in kinds)
    return apart * 50 // (all_before * all_now)


def _most_frequent(counts: Mapping[Kind, int]) -> list[tuple[Kind, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], msgspec.structs.astuple(each[0])))
