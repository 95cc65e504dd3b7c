"""Gangs that can't be whole any more are released: what is left of them is evicted after a grace time (S4).

A gang starts whole, but a member may be deleted on its way, refused by kubelet, or lost with its node. Then the rest
holds devices for nothing. If the gang is not whole again within the grace time (kai-contract 4.7: 60 s), its bound
members are evicted, PodDisruptionBudgets respected, so that their controller starts them anew, together.
A gang of which a member has succeeded is at its end, and is left alone.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from kube.api import Api
from kube.errors import ApiError
from kube.events import EventRecorder
from kube.resources import POD_GROUPS
from scheduler.cache import Cache
from scheduler.core.records import PodGroupRecord, PodRecord
from wire.core import ObjectReference
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)
Key = tuple[str, str]


class Releasing:
    """Looks for gangs below their minimum, and releases them when their time is over."""

    def __init__(self, api: Api, cache: Cache, *, events: EventRecorder, grace_s: float) -> None:
        self._api = api
        self._cache = cache
        self._events = events
        self._grace_s = grace_s
        #: Gang -> since when (event loop's time) it has been below its minimum.
        self._since: dict[Key, float] = {}

    async def run(self) -> None:
        """Look now and then: a tenth of the grace time is soon enough."""
        while True:
            await anyio.sleep(self._grace_s / 10)
            await self.look()

    async def look(self) -> None:
        """Release what has been below its minimum for the grace time."""
        now = anyio.current_time()
        broken = {(group.namespace, group.name): group for group in self._cache.cluster.broken_gangs()}
        finished = self._cache.finished
        self._since = {key: self._since.get(key, now) for key in broken if key not in finished}
        for key in [key for key, since in self._since.items() if now - since >= self._grace_s]:
            await self._release(broken[key])

    async def _release(self, group: PodGroupRecord) -> None:
        members = [pod for pod in self._cache.cluster.members(group.namespace, group.name) if pod.node]
        for pod in sorted(members, key=lambda member: member.name):
            if pod.deleting:
                continue
            try:
                await self._api.evict(pod.namespace, pod.name, uid=pod.uid)
            except ApiError as error:
                _log.warning("pod %s/%s of a broken gang was not evicted: %s", pod.namespace, pod.name, error)
                continue
            self._tell(group, pod)

    def _tell(self, group: PodGroupRecord, pod: PodRecord) -> None:
        regarding = ObjectReference(
            api_version=POD_GROUPS.api_version,
            kind=POD_GROUPS.kind,
            name=group.name,
            namespace=group.namespace,
            uid=group.uid,
        )
        note = (
            f"Workload doesn't meet the minimum required number of pods ({group.minimum}), evicting remaining pod: "
            f"{pod.namespace}/{pod.name}"
        )
        self._events.record(regarding, reason="Evict", action="Evicting", note=note, type=WARNING)
