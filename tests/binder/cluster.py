"""A binder on the in-memory API server, with a stand-in for kubelet and none for the scheduler: tests play that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from binder.app import Binder
from binder.settings import BinderSettings
from gpu import bind_request
from gpu import book as device_book
from gpu.bind_request import Handover, PlannedDevice
from gpu.book import Book
from kube.client import errors
from kube.client.api import Api
from kube.client.resources import BIND_REQUESTS, NODES, PODS, Resource
from kube.client.retry import Retry
from kube.events import EventRecorder
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.transport import MemoryTransport
from simulator.apiserver.types import NVIDIA
from simulator.clock import VirtualClock
from wire import names
from wire.core import ObjectMeta, Pod
from wire.crds.bindrequest import BindRequest

TEAM = "team"
HALF = 500_000_000
BINDER = "binder"
KUBELET = "kubelet"
RESERVATIONS = names.RESERVATION_NAMESPACE


class _ServiceAccount(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_ACCOUNTS = Resource(
    version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True, type=_ServiceAccount
)


@dataclass
class Kubelet:
    """Runs reservation pods: Running and a UUID, the next one of the node or the one that is told here."""

    api: Api
    #: The server's latest version: where nothing was written, there is nothing new to see.
    version: Callable[[], int]
    #: Nodes whose kubelet says nothing.
    silent: set[str] = field(default_factory=set)
    #: Reservation pods to be rejected.
    rejects: int = 0
    uuids: list[str] = field(default_factory=list)
    #: Devices of which free ones are given, in this order, and a pod is rejected where none is; () is without end.
    free: Sequence[str] = ()
    start_s: float = 0.5
    #: UID -> UUID that was given.
    given: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        seen: object = None
        while True:
            await anyio.sleep(0.1)
            if seen == (seen := (self.version(), frozenset(self.silent))):
                continue
            for pod in (await self.api.list(PODS, namespace=RESERVATIONS)).items:
                try:
                    await self._tend(pod)
                except (errors.NotFound, errors.Conflict):
                    continue

    async def _tend(self, pod: Pod) -> None:
        meta = pod.metadata
        if pod.spec.node_name in self.silent:
            return
        if meta.deletion_timestamp is not None:
            if meta.deletion_grace_period_seconds:
                await self.api.delete(PODS, meta.name, namespace=RESERVATIONS, uid=meta.uid, grace_s=0)
        elif pod.status.phase in {"", "Pending"} and meta.uid not in self.given:
            await anyio.sleep(self.start_s)
            await self._start(meta)

    async def _start(self, meta: ObjectMeta) -> None:
        uuid = await self._choose()
        if not uuid:
            await self.status(meta.name, phase="Failed", reason="UnexpectedAdmissionError")
            return
        self.given[meta.uid] = uuid
        running = [{"name": "resource-reservation", "state": {"running": {}}, "ready": True}]
        await self.status(meta.name, phase="Running", containerStatuses=running)
        await self.tell(meta.name, self.given[meta.uid])

    async def _choose(self) -> str:
        """The next device, "" where there is none."""
        if self.rejects:
            self.rejects -= 1
            return ""
        if self.uuids:
            return self.uuids.pop(0)
        if not self.free:
            return f"GPU-{len(self.given)}"
        there = {pod.metadata.uid for pod in (await self.api.list(PODS, namespace=RESERVATIONS)).items}
        held = {uuid for uid, uuid in self.given.items() if uid in there}
        return next((uuid for uuid in self.free if uuid not in held), "")

    async def status(self, name: str, *, namespace: str = RESERVATIONS, **status: Any) -> None:
        await self.api.patch(PODS, name, {"status": status}, namespace=namespace, subresource="status")

    async def tell(self, name: str, uuid: str) -> None:
        patch = {"metadata": {"annotations": {names.RESERVE_FOR_GPU_INDEX: uuid}}}
        await self.api.patch(PODS, name, patch, namespace=RESERVATIONS)


class Cluster:
    def __init__(
        self, server: MemoryApiServer, tasks: TaskGroup, settings: BinderSettings, recorder: type[EventRecorder]
    ) -> None:
        self._recorder = recorder
        self.server = server
        self.settings = settings
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.api = Api(server.transport("test"), retry=Retry(random.Random(1)))
        self.kubelet = Kubelet(
            Api(server.transport(KUBELET), retry=Retry(random.Random(2))), version=lambda: server.resource_version
        )
        self.binder: Binder
        self._tasks = tasks
        self._transport: MemoryTransport
        self._scope = anyio.CancelScope()

    async def start(self) -> None:
        transport = self.server.transport(BINDER)
        api = Api(transport, retry=Retry(random.Random(3)))
        events = self._recorder(api, clock=self.clock, controller=BINDER, instance="binder-0")
        binder = Binder(api, settings=self.settings, clock=self.clock, rng=random.Random(4), events=events)
        self.binder, self._transport, self._scope = binder, transport, anyio.CancelScope()
        scope = self._scope

        async def run(*, task_status: Any) -> None:
            with scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(events.run)
                    await tasks.start(binder.run)
                    task_status.started()

        await self._tasks.start(run)

    def kill(self) -> None:
        """Its connection goes dark first: nothing that a dying process might still do reaches the server."""
        self._transport.kill()
        self._scope.cancel()

    # --- what tests do -----------------------------------------------------------------------------------------------
    async def node(self, name: str = "node-1", **spec: Any) -> None:
        await self.api.create(NODES, {"metadata": {"name": name}, "spec": spec})

    async def pod(
        self,
        name: str = "p",
        *,
        fraction: str = "0.5",
        devices: int = 1,
        tolerations: Sequence[Mapping[str, str]] = (),
        **annotations: str,
    ) -> Pod:
        asks = {"gpu-fraction": fraction} if fraction else {}
        if devices > 1:
            asks["gpu-fraction-num-devices"] = str(devices)
        containers = [{"name": "main", "image": "work"}]
        spec = {"schedulerName": names.SCHEDULER_NAME, "containers": containers, "tolerations": list(tolerations)}
        meta = {"name": name, "namespace": TEAM, "annotations": {**asks, **annotations}}
        return await self.api.create(PODS, {"metadata": meta, "spec": spec}, namespace=TEAM)

    async def hand_over(
        self,
        pod: Pod,
        *groups: str,
        node: str = "node-1",
        nano: int = HALF,
        mem_mib: int = 0,
        plan: str = "",
        members: int = 1,
        resource: str = names.GPU_RESOURCE,
    ) -> BindRequest:
        meta = pod.metadata
        devices = tuple(PlannedDevice(group, nano, mem_mib, resource=resource) for group in groups)
        handed = Handover(meta.resource_version, devices, plan, members)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        body = {
            "metadata": {
                "name": meta.name,
                "annotations": {names.HANDOVER: bind_request.render(handed)},
                "ownerReferences": [owner],
            },
            "spec": {"podName": meta.name, "selectedNode": node, "selectedGPUGroups": list(groups)},
        }
        return await self.api.create(BIND_REQUESTS, body, namespace=TEAM)

    async def bound(self, name: str = "p", *groups: str) -> Pod:
        """A pod that the binder has bound to these groups."""
        pod = await self.pod(name, devices=max(len(groups), 1))
        await self.hand_over(pod, *(groups or ("g",)))
        await self.until(self.is_bound, name)
        await anyio.sleep(1)
        return await self.get(name)

    async def get(self, name: str = "p", namespace: str = TEAM) -> Pod:
        return await self.api.get(PODS, name, namespace=namespace)

    async def exists(self, name: str, namespace: str = TEAM) -> bool:
        try:
            await self.get(name, namespace)
        except errors.NotFound:
            return False
        return True

    async def is_bound(self, name: str = "p") -> bool:
        return bool((await self.get(name)).spec.node_name)

    async def is_fenced(self, name: str = "p") -> bool:
        return names.FENCED in ((await self.get(name)).metadata.annotations or {})

    async def reservations(self) -> list[Pod]:
        return (await self.api.list(PODS, namespace=RESERVATIONS)).items

    async def reservation(self, group: str = "g") -> Pod:
        (found,) = [
            pod for pod in await self.reservations() if (pod.metadata.labels or {})[names.GPU_GROUP_LABEL] == group
        ]
        return found

    async def book(self, group: str = "g") -> Book:
        return device_book.parse(((await self.reservation(group)).metadata.annotations or {})[names.TENANTS])

    async def tenants(self, group: str = "g") -> set[str]:
        return {entry.pod.partition("/")[2] for entry in (await self.book(group)).entries.values()}

    async def requests(self) -> list[str]:
        return [request.metadata.name for request in (await self.api.list(BIND_REQUESTS)).items]

    async def fall_ill(self, group: str = "g", health: str = names.UNHEALTHY) -> None:
        """The device plugin says how the device of a group is, and kubelet tells it."""
        told = [{"name": names.GPU_RESOURCE, "resources": [{"resourceID": "GPU", "health": health}]}]
        running = {"name": "resource-reservation", "state": {"running": {}}, "allocatedResourcesStatus": told}
        await self.kubelet.status((await self.reservation(group)).metadata.name, containerStatuses=[running])

    async def until(self, condition: Callable[..., Awaitable[bool]], *about: Any, limit_s: float = 300.0) -> None:
        with anyio.fail_after(limit_s):
            while not await condition(*about):  # noqa: ASYNC110 - what it waits for is on the server
                await anyio.sleep(0.05)

    def writes(self, *users: str) -> list[str]:
        """Writes of these users that were carried out: "verb resource/subresource"."""
        reads = {"get", "list", "watch"}
        return [
            f"{entry.verb} {entry.resource}{'/' if entry.subresource else ''}{entry.subresource}"
            for entry in self.server.audit
            if entry.user in users and entry.verb not in reads and entry.code < 300
        ]


@asynccontextmanager
async def cluster(
    *, started: bool = True, recorder: type[EventRecorder] = EventRecorder, **settings: Any
) -> AsyncIterator[Cluster]:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(5), auto_namespaces=True, extra_types=NVIDIA)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        made = Cluster(server, tasks, BinderSettings(**settings), recorder)
        account = {"metadata": {"name": names.RESERVATION_SERVICE_ACCOUNT}}
        await made.api.create(_ACCOUNTS, account, namespace=RESERVATIONS)
        await made.api.create(_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=TEAM)
        await made.node()
        tasks.start_soon(made.kubelet.run)
        if started:
            await made.start()
        yield made
        tasks.cancel_scope.cancel()
