"""What a simulated node reads from and writes to the API server about its pods, with kubelet's patience."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import CONFIG_MAPS, PODS
from simulator import environment
from simulator.secrets import SECRETS
from wire.core import Container, Pod

#: What a kubelet tries again. Refusals of its rights as well: tokens, roles and policies change, and it goes on.
_PASSING = (
    errors.Unreachable,
    errors.ServerError,
    errors.TooManyRequests,
    errors.Unauthorized,
    errors.Forbidden,
)


@dataclass(slots=True)
class Reporter:
    """One node's line to the API server. While it is ``cut`` nothing goes through, and everybody waits."""

    api: Api
    writers: anyio.CapacityLimiter
    retry_s: float
    _connected: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self._connected.set()

    @property
    def is_connected(self) -> bool:
        """Whether the line is up."""
        return self._connected.is_set()

    def cut(self) -> None:
        """Lose the line."""
        if self.is_connected:
            self._connected = anyio.Event()

    def mend(self) -> None:
        """Have the line back."""
        self._connected.set()

    async def write_status(self, pod: Pod, make: Callable[[Pod], dict[str, Any]]) -> Pod | None:
        """Write ``make(pod)`` as the pod's status until it is there; return the pod as stored, None if it is gone.

        The pod's resourceVersion is a precondition, so that no condition of another writer is lost.
        """
        while True:
            try:
                return await self._patch_status(pod, make(pod))
            except errors.NotFound:
                return None
            except errors.Conflict:
                fresh = await self._read_again(pod)
                if fresh is None:
                    return None
                if fresh.metadata.resource_version == pod.metadata.resource_version:
                    # Refused though nobody else has written: asked again like any other failure.
                    await anyio.sleep(self.retry_s)
                pod = fresh
            except _PASSING:
                await anyio.sleep(self.retry_s)

    async def remove(self, pod: Pod) -> None:
        """Delete a pod at once, by UID, until it is gone or going."""
        meta = pod.metadata
        while True:
            await self._connected.wait()
            try:
                async with self.writers:
                    await self.api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_s=0)
            except (errors.NotFound, errors.Conflict):
                return
            except _PASSING:
                await anyio.sleep(self.retry_s)
            else:
                return

    async def sources(self, pod: Pod, container: Container) -> environment.Sources:
        """Read the ConfigMaps and Secrets that a container's environment is made from."""
        wanted = sorted(environment.sources_of(container))
        return {(kind, name): await self._source(kind, name, pod.metadata.namespace) for kind, name in wanted}

    async def _patch_status(self, pod: Pod, status: dict[str, Any]) -> Pod:
        meta = pod.metadata
        await self._connected.wait()
        async with self.writers:
            return await self.api.patch(
                PODS,
                meta.name,
                {"status": status},
                namespace=meta.namespace,
                subresource="status",
                uid=meta.uid,
                resource_version=meta.resource_version,
            )

    async def _read_again(self, pod: Pod) -> Pod | None:
        try:
            fresh = await self.api.get(PODS, pod.metadata.name, namespace=pod.metadata.namespace)
        except errors.NotFound:
            return None
        except errors.ApiError:
            await anyio.sleep(self.retry_s)
            return pod
        return fresh if fresh.metadata.uid == pod.metadata.uid else None

    async def _source(self, kind: str, name: str, namespace: str) -> dict[str, str] | None:
        await self._connected.wait()
        try:
            if kind == environment.SECRET:
                return (await self.api.get(SECRETS, name, namespace=namespace)).text()
            return (await self.api.get(CONFIG_MAPS, name, namespace=namespace)).data or {}
        except errors.ApiError:
            # Not there, or not readable now: kubelet waits in either case.
            return None
