"""Faulty agents that make MIG slices (M): each destroys one that somebody has."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from nodeagent.core.mig_partitioning import Seen
from nodeagent.mig.partitioning import GpuPartitioner


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
