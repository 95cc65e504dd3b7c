"""Faulty views of claims (C), also of those that the scheduler made (E), and faulty agents that make MIG slices (M).

Devices are given twice, pods bound too early, claims kept, pods forgotten, and slices destroyed that somebody has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from typing_extensions import override

from nodeagent.core.mig_partitioning import Seen
from nodeagent.mig.partitioning import GpuPartitioner
from scheduler.core.claims.cel import compile_selector
from scheduler.core.cluster import Cluster
from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.resource_claims import ResourceClaims
from tests.simulation.planted.wires import Rewriting


def having(claims: Callable[..., ResourceClaims]) -> type[Cluster]:
    """A cluster that sees claims in this way."""

    class Having(Cluster):
        def __init__(self, settings: Settings) -> None:
            super().__init__(settings)
            self.claims = claims(self._changed, self._touch, compiler=compile_selector, pod=self._pods.records.get)

    return Having


class TrustsItsOwnWrite(ResourceClaims):
    """A claim that was written for a pod is used, also if its device was given to another claim before."""

    @override
    def is_usable(self, pod: PodRecord) -> bool:
        return self._own.get(pod.uid) == pod.rv and pod.uid not in self._leaving


class ReservesNothingThatIsAllocated(ResourceClaims):
    """A claim that is allocated is had by all pods that name it."""

    @override
    def judged(self, pod: PodRecord) -> PodRecord:
        return msgspec.structs.replace(super().judged(pod), to_reserve=())


class GivesNothingBack(ResourceClaims):
    """A claim stays reserved for a pod that can't be bound by it."""

    @override
    def held_by_waiting(self) -> list[PodRecord]:
        return []


def wakes_nobody(_changed: Callable[..., None], _touched: Callable[[str], None], **rest: Any) -> ResourceClaims:
    """Pods that wait for devices sleep until something else changes."""
    return ResourceClaims(lambda *_: None, lambda _: None, **rest)


_MINIMUM = re.compile(rb'("minMember":)\d+')


@dataclass(slots=True)
class PreparesOneByOne(Rewriting):
    """Members of a gang are prepared and bound each on its own."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return _MINIMUM.sub(rb"\g<1>1", text)


_DRAWS = re.compile(rb'"consumesCounters":\[[^\]]*\],?')


@dataclass(slots=True)
class SeesNoCounters(Rewriting):
    """What devices take of counters of their pool is not read."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return _DRAWS.sub(b"", text).replace(b",}", b"}")


class KeepsWhatItMade(ResourceClaims):
    """Only reservations are given back, and no claim that was made and is not reserved yet."""

    @override
    def held(self, pod: PodRecord) -> list[ResourceClaimRecord]:
        return self.reserved_for(pod)


class ForgetsWhatItMade(ResourceClaims):
    """Devices of claims that were made for extended resources are not counted as taken."""

    @override
    def _claim_changed(self, record: ResourceClaimRecord) -> None:
        super()._claim_changed(record)
        now = self.claims.get(record.key)
        if now is not None and now.is_extended:
            self.taken.drop(now.uid)


_PART = re.compile(rb'("consumedCapacity":\{"memory":)"[^"]*"')


@dataclass(slots=True)
class SeesNoParts(Rewriting):
    """What a share takes of the memory of a device is read as one byte."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return _PART.sub(rb'\g<1>"1"', text)


class AsksNoKubelet(GpuPartitioner):
    """kubelet's List is not asked: which pods have slices is taken from processes and books."""

    @override
    async def _look(self) -> dict[str, Seen]:
        return {uuid: replace(seen, given=frozenset()) for uuid, seen in (await super()._look()).items()}


class SeesNoProcess(GpuPartitioner):
    """What runs past kubelet is not looked for: a container that kubelet forgot when it restarted."""

    @override
    async def _look(self) -> dict[str, Seen]:
        return {
            uuid: replace(seen, present=tuple(replace(each, has_process=False) for each in seen.present))
            for uuid, seen in (await super()._look()).items()
        }


class WithdrawsNothing(GpuPartitioner):
    """Slices that are to go are offered until they are gone, and the plug-in hands them out."""

    @property
    @override
    def withdrawn(self) -> frozenset[str]:
        return frozenset()

    @override
    async def _look(self) -> dict[str, Seen]:
        return {uuid: replace(seen, offered=frozenset()) for uuid, seen in (await super()._look()).items()}


class LooksOnce(GpuPartitioner):
    """The second look comes right after the first: what kubelet gave just before is not shown by then."""

    @override
    async def _look(self) -> dict[str, Seen]:
        return {uuid: replace(seen, at_ns=seen.at_ns * 100) for uuid, seen in (await super()._look()).items()}


class BelievesAnyKubelet(GpuPartitioner):
    """A kubelet that has just started, and lists no pods yet, is believed."""

    @override
    async def _look(self) -> dict[str, Seen]:
        long_ago = -(10**15)
        return {uuid: replace(seen, kubelet_since_ns=long_ago) for uuid, seen in (await super()._look()).items()}
