"""A node or two on the in-memory API server, without scheduler and binder: tests bind pods themselves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import PODS, Resource
from kube.client.retry import Retry
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from simulator.nodes import shape
from simulator.nodes.ground_truth import Started
from simulator.nodes.node_set import NodeSet
from simulator.nodes.shape import KubeletSettings, NodeShape
from wire import names
from wire.core import ObjectMeta, Pod

NAMESPACE = "team"


class ServiceAccount(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


SERVICE_ACCOUNTS = Resource(
    version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True, type=ServiceAccount
)


@dataclass(slots=True)
class Machines:
    server: MemoryApiServer
    api: Api
    nodes: NodeSet
    clock: Clock

    async def create(self, manifest: dict[str, Any]) -> Pod:
        namespace = manifest["metadata"].setdefault("namespace", NAMESPACE)
        return await self.api.create(PODS, manifest, namespace=namespace)

    async def pod(self, name: str, namespace: str = NAMESPACE) -> Pod:
        return await self.api.get(PODS, name, namespace=namespace)

    async def exists(self, name: str, namespace: str = NAMESPACE) -> bool:
        try:
            await self.pod(name, namespace)
        except errors.NotFound:
            return False
        return True

    def seen(self, pod: Pod) -> dict[str, tuple[int, ...]]:
        """Container -> indices of the devices that its newest run saw."""
        index = {device.uuid: device.index for devices in self.nodes.devices.values() for device in devices}
        seen = self.nodes.ground_truth.seen_by(pod.metadata.uid)
        return {container: tuple(index[uuid] for uuid in devices) for container, devices in seen.items()}

    def starts(self, pod: Pod) -> list[str]:
        """Containers in the order in which they were started."""
        history = self.nodes.ground_truth.history
        return [r.container for r in history if isinstance(r, Started) and r.pod_uid == pod.metadata.uid]


@asynccontextmanager
async def machines(
    nodes: Sequence[str] = ("1x2x1GiB",),
    *,
    settings: KubeletSettings | None = None,
    shapes: Sequence[NodeShape] | None = None,
    prepare: Callable[[MemoryApiServer], None] = lambda _: None,
) -> AsyncIterator[Machines]:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    prepare(server)
    api = Api(server.transport("test"), retry=Retry(random.Random(2)))
    account = {"metadata": {"name": names.RESERVATION_SERVICE_ACCOUNT}}
    await api.create(SERVICE_ACCOUNTS, account, namespace=names.RESERVATION_NAMESPACE)
    node_set = NodeSet(
        server.transport("nodes"),
        shapes or shape.parse(nodes),
        clock=clock,
        seed=3,
        settings=settings or KubeletSettings(shuffle_devices=False, image_visible_devices=""),
    )
    async with anyio.create_task_group() as group:
        await group.start(node_set.run)
        yield Machines(server, api, node_set, clock)
        group.cancel_scope.cancel()


def bound(name: str, *, node: str = "node-0", gpus: int = 0, **more: Any) -> dict[str, Any]:
    """Return a pod with nodeName set; but for ``annotations``, ``env``, ``limits``, ``cpu`` keywords go to its spec."""
    container: dict[str, Any] = {"name": "main", "image": "work", "env": more.pop("env", [])}
    limits = {names.GPU_RESOURCE: str(gpus)} if gpus else {}
    limits |= more.pop("limits", {})
    if cpu := more.pop("cpu", ""):
        limits["cpu"] = cpu
    container["resources"] = {"limits": limits, "requests": limits}
    return {
        "metadata": {"name": name, "annotations": more.pop("annotations", {})},
        "spec": {"nodeName": node, "schedulerName": "kai-scheduler", "containers": [container], **more},
    }


def reservation(
    name: str, *, group: str = "g", node: str = "node-0", resource: str = names.GPU_RESOURCE
) -> dict[str, Any]:
    """A reservation pod, as in kai-contract 1.6."""
    amounts = {resource: "1"}
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}
    env = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    container = {
        "name": "resource-reservation",
        "image": "reservation",
        "resources": {"limits": amounts, "requests": amounts},
        "env": env,
    }
    labels = {"app": names.RESERVATION_APP, "runai-gpu-group": group}
    return {
        "metadata": {"name": name, "namespace": names.RESERVATION_NAMESPACE, "labels": labels},
        "spec": {"nodeName": node, "serviceAccountName": names.RESERVATION_SERVICE_ACCOUNT, "containers": [container]},
    }
