"""Reading what a migration is judged by. What can't be read is reported, and the rest is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from cli.checks.reader import CantLook, Raw, Reader
from cli.livekai import Found as LiveKai
from cli.livekai import look_for_kai
from cli.migration.found import Found
from cli.migration.running import is_kais_webhook, is_lenient
from gpu.ended import has_ended
from gpu.grant import labelled_groups
from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import (
    BIND_REQUESTS,
    MUTATING_WEBHOOKS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from wire import names
from wire.core import Node, Pod

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")

CONFIGS: Final = "/apis/kai.scheduler/v1/configs"
SHARDS: Final = "/apis/kai.scheduler/v1/schedulingshards"
DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{names.SYSTEM_NAMESPACE}/deployments"


class Survey:
    """Reads everything once."""

    def __init__(self, reader: Reader, api: Api) -> None:
        self._reader = reader
        self._api = api
        self._unread: list[tuple[str, str]] = []

    async def read(self) -> Found:
        """Read all. Never raises for what can't be read."""
        live = await self._or("KAI's pods and leases", lambda: look_for_kai(self._api), LiveKai())
        space = await self._or(
            "Namespaces", lambda: self._reader.get(f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}"), None
        )
        webhooks = [found async for found in self._webhooks()]
        return Found(
            at_work=live.at_work,
            elsewhere=live.elsewhere,
            deployments=await self._raw("Deployments", DEPLOYMENTS),
            webhooks=tuple(name for name, _ in webhooks),
            lenient_webhooks=frozenset(name for name, is_lenient in webhooks if is_lenient),
            reservation_namespace=space or {},
            configs=await self._raw("Configs", CONFIGS),
            shards=await self._raw("SchedulingShards", SHARDS),
            queues=await self._decoded(QUEUES),
            groups=await self._decoded(POD_GROUPS),
            requests=await self._decoded(BIND_REQUESTS),
            pods=tuple(pod for pod in await self._digest(PODS, _kept) if pod is not None),
            nodes={node.metadata.name: node for node in await self._digest(NODES, _of_node)},
            unread=tuple(self._unread),
        )

    async def _webhooks(self) -> AsyncIterator[tuple[str, bool]]:
        """KAI's registrations, and whether they refuse nothing while KAI does not answer."""
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            for one in await self._raw(resource.kind, resource.path()):
                if is_kais_webhook(one):
                    yield f"{resource.kind} {one['metadata']['name']}", is_lenient(one)

    async def _raw(self, what: str, path: str) -> tuple[Raw, ...]:
        return tuple(await self._or(what, lambda: self._reader.items(path, if_served=True), []))

    async def _decoded(self, resource: Resource[T]) -> tuple[T, ...]:
        """Objects of ours or KAI's; one that can't be read is named."""
        found: list[T] = []
        for raw in await self._raw(f"{resource.kind}s", resource.path()):
            try:
                found.append(msgspec.convert(raw, resource.type))
            except msgspec.ValidationError as error:
                name = "/".join(raw["metadata"][part] for part in ("namespace", "name") if part in raw["metadata"])
                self._unread.append((f"{resource.kind} {name}", str(error)))
        return tuple(found)

    async def _digest(self, resource: Resource[T], keep: Callable[[T], R]) -> list[R]:
        async def read() -> list[R]:
            listing = await self._api.digest(resource, keep)
            self._unread += [(f"{resource.kind} {one.key}", one.error) for one in listing.undecoded]
            return listing.items

        return await self._or(f"{resource.kind}s", read, [])

    async def _or(self, what: str, read: Callable[[], Awaitable[R]], otherwise: R) -> R:
        try:
            return await read()
        except (ApiError, CantLook) as error:
            self._unread.append((what, str(error)))
            return otherwise


def _kept(pod: Pod) -> Pod | None:
    """Whether a pod has to do with KAI's scheduling, and has not ended. A reservation that has is of interest."""
    labels = pod.metadata.labels or {}
    if labels.get(names.APP_LABEL) == names.RESERVATION_APP:
        return pod
    is_kais = pod.spec.scheduler_name == names.SCHEDULER_NAME or bool(labelled_groups(labels))
    return pod if is_kais and not has_ended(pod.status) else None


def _of_node(node: Node) -> Node:
    """A node without what nobody asks here: images and conditions are most of it."""
    return Node(metadata=node.metadata)
