"""Kinds of GPU pods: what a pod asks of a node, without its name, its labels and what it says about places.

Prices (scores/prices.py) and reports of fragmentation (report/fragmentation.py) go by kinds, not by pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu.request import FractionAsk, MemoryAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from wire import names

WHOLE_MILLI: Final = 1_000
#: Fewer GPU pods than these say nothing about those to come.
LEAST_PODS: Final = 50
#: The most frequent kinds that make up so much of all pods are usual.
_USUAL_PERCENT: Final = 95


class Kind(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod asks: devices, milli-GPU of each (1,000: whole ones), CPU and memory in all.

    ``device_mib``: memory of each device, of a pod that asks for its shares so and has none yet; ``milli`` is 0 then.
    """

    devices: int
    milli: int
    cpu_milli: int
    mem_mib: int
    device_mib: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it asks for whole devices."""
        return self.milli == WHOLE_MILLI


def kind_of(pod: PodRecord) -> Kind | None:
    """Return the kind of a pod on a node; None without GPUs. Unequal shares count as the largest of them.

    What a share takes is its grant; without one (KAI's) only fractions are known. Rounded down, so that three thirds
    fit one device.
    """
    granted = [held.nano for held in pod.held if held.nano and held.resource == names.GPU_RESOURCE]
    return _kind(pod.cls, granted or _fractions(pod.cls))


def asked_kind(cls: PodClass) -> Kind | None:
    """Return the kind that pods of a class ask for that have no node; None without GPUs, or with MIG slices alone."""
    asked = [ask.mem_mib for ask in cls.request.shared if isinstance(ask, MemoryAsk) and not ask.profile]
    if cls.demand.gpus or not asked:
        return _kind(cls, _fractions(cls))
    return Kind(len(asked), 0, cls.demand.cpu_milli, cls.demand.mem_mib, max(asked))


def usual(counts: Mapping[Kind, int]) -> list[tuple[Kind, int]]:
    """Return the most frequent kinds that make up 95 % of all pods, and their counts, most frequent first."""
    total, seen = sum(counts.values()), 0
    found: list[tuple[Kind, int]] = []
    for kind, count in most_frequent(counts):
        if seen * 100 >= total * _USUAL_PERCENT:
            break
        seen += count
        found.append((kind, count))
    return found


def most_frequent(counts: Mapping[Kind, int]) -> list[tuple[Kind, int]]:
    """Return all kinds with their counts, most frequent first, equal ones in an order of their own."""
    return sorted(counts.items(), key=lambda each: (-each[1], msgspec.structs.astuple(each[0])))


def _kind(cls: PodClass, shares_nano: list[int]) -> Kind | None:
    demand = cls.demand
    if demand.gpus:
        return Kind(demand.gpus, WHOLE_MILLI, demand.cpu_milli, demand.mem_mib)
    if not shares_nano:
        return None
    milli = max(max(shares_nano) * WHOLE_MILLI // NANO_PER_DEVICE, 1)
    return Kind(len(shares_nano), milli, demand.cpu_milli, demand.mem_mib)


def _fractions(cls: PodClass) -> list[int]:
    return [ask.nano for ask in cls.request.shared if isinstance(ask, FractionAsk) and not ask.profile]
