"""Tells bound pods what their node can't hold them to: one condition, once, and none where all is enforced.

Nothing depends on it, so it comes after everything else: a few writes side by side, each at the version that was read
for it, repeated until it is there or the pod is gone. Who leads after us finds the condition, or writes it.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import anyio
import msgspec

from gpu.asked import asked_on
from gpu.telling import unenforced_text
from kube import binding
from kube.binding import Identity
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError, NotFound
from kube.client.resources import PODS
from scheduler.core.filters.enforcement import unenforced
from scheduler.core.model.records import PodRecord
from scheduler.watch.cache import Cache, says_unenforced
from wire import names
from wire.core import Pod
from wire.rfc3339 import rfc3339

_log: Final = logging.getLogger(__name__)


class Enforcing:
    """Writes the condition GPULimitsEnforced=False. ``retry_s``: after a write that failed or met another one."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock, retry_s: float, in_flight: int) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._retry_s = retry_s
        self._in_flight = in_flight
        #: Pods (UIDs) that are being told.
        self._telling: set[str] = set()

    async def run(self) -> None:
        """Tell pods until cancelled."""
        limiter = anyio.CapacityLimiter(self._in_flight)
        async with anyio.create_task_group() as tasks:
            self._telling.clear()
            while True:
                for uid in [uid for uid in self._cache.unenforced if uid not in self._telling]:
                    self._telling.add(uid)
                    tasks.start_soon(self._tell, uid, limiter)
                await self._cache.on_unenforced.wait()

    async def _tell(self, uid: str, limiter: anyio.CapacityLimiter) -> None:
        """Write until it is written, or there is nothing to say any more."""
        while uid in self._cache.unenforced:
            try:
                async with limiter:
                    await self._write(uid)
            except NotFound:
                self._cache.unenforced.pop(uid, None)
            except ApiError as error:
                _log.debug("pod %s was not told what its node can't enforce: %s", uid, error)
                await anyio.sleep(self._retry_s)
        self._telling.discard(uid)

    async def _write(self, uid: str) -> None:
        """Take the pod from those to be told, once it says so. Raises ApiError."""
        record = self._cache.cluster.pod(uid)
        if record is not None:
            pod = await binding.read(self._api, Identity(record.namespace, record.name, uid))
            message = self._message(record, pod)
            if pod is not None and message:
                self._cache.note_pod(await self._patch(pod, message))
        self._cache.unenforced.pop(uid, None)

    def _message(self, record: PodRecord, pod: Pod | None) -> str:
        """What is to be said of a pod that was just read, "" if nothing, or if it is said."""
        node = self._cache.cluster.node(record.node)
        if pod is None or node is None or pod.spec.node_name != record.node or says_unenforced(pod):
            return ""
        words = unenforced(record.cls, node)
        if not words or record.deleting:
            return ""
        request = asked_on(pod, node.labels) or record.cls.request
        limits = unenforced_text(request, record.cls.wishes, words)
        return f"Node {node.name} does not enforce {limits}: kept as bookkeeping only"

    async def _patch(self, pod: Pod, message: str) -> Pod:
        condition: dict[str, Any] = {
            "type": names.CONDITION_LIMITS_ENFORCED,
            "status": "False",
            "reason": names.REASON_NOT_ENFORCED,
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.now_ns()),
        }
        meta = pod.metadata
        return await self._api.patch(
            PODS,
            meta.name,
            {"status": {"conditions": [*msgspec.to_builtins(pod.status.conditions or []), condition]}},
            namespace=meta.namespace,
            subresource="status",
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
