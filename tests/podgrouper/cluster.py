"""Grouping on the in-memory API server; tests play the controllers that make owners and pods."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import EVENTS, POD_GROUPS, PODS, Resource
from kube.client.retry import Retry
from kube.events import EventRecorder
from kube.telemetry.logevents import ignore
from podgrouper.app import Podgrouper
from podgrouper.read.discovery import Object
from podgrouper.settings import WorkloadSettings
from podgrouper.telemetry.events import Emit
from simulator.apiserver.calls import Call
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.transport import MemoryTransport
from simulator.apiserver.types import ResourceType, custom
from simulator.clock import VirtualClock
from tests.podgrouper.objects import NAMESPACE
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference, Pod
from wire.crds.podgroup import PodGroup

USER = "podgrouper"
LEAST = "kai.scheduler/batch-min-member"
SETTLE_S = 2.0
SERVICE_ACCOUNTS: Resource[Object] = Resource(
    version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True, type=Object
)

TYPES: tuple[ResourceType, ...] = (
    custom("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", namespaced=True),
    custom("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True),
    custom("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", namespaced=True),
    custom("example.com", "v1", "batches", "Batch", namespaced=True),
)


def is_read_of(kind: str, user: str = USER) -> Callable[[Call], bool]:
    """Picks reads of single objects of a kind."""
    return lambda call: call.user.startswith(user) and call.verb == "get" and call.kind.kind == kind


def is_write_of(kind: str, verb: str, user: str = USER) -> Callable[[Call], bool]:
    return lambda call: call.user.startswith(user) and call.verb == verb and call.kind.kind == kind


class Replica:
    """One process: killed, it goes dark first."""

    def __init__(self, app: Podgrouper, transport: MemoryTransport, scope: anyio.CancelScope) -> None:
        self.app, self._transport, self._scope = app, transport, scope

    def kill(self) -> None:
        self._transport.kill()
        self._scope.cancel()


class Cluster:
    def __init__(self, server: MemoryApiServer, tasks: TaskGroup, settings: WorkloadSettings) -> None:
        self.server = server
        self.api = Api(server.transport("test"), retry=Retry(random.Random(1)))
        self._settings = settings
        self._tasks = tasks
        self._replicas = 0

    async def start(self, emit: Emit = ignore) -> Replica:
        """Start a replica that leads at once, as without an election: two of them are two leaders."""
        self._replicas += 1
        user = USER if self._replicas == 1 else f"{USER}-{self._replicas}"
        transport = self.server.transport(user)
        api = Api(transport, retry=Retry(random.Random(self._replicas + 10)))
        clock = VirtualClock(asyncio.get_running_loop())
        events = EventRecorder(api, clock=clock, controller=USER, instance=user)
        rng = random.Random(self._replicas + 20)
        app = Podgrouper(api, settings=self._settings, rng=rng, events=events, emit=emit)
        scope = anyio.CancelScope()

        async def run(*, task_status: Any) -> None:
            with scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(events.run)
                    await tasks.start(app.run)
                    task_status.started()

        await self._tasks.start(run)
        return Replica(app, transport, scope)

    # --- what controllers do
    async def owner(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an owner, and return it with its UID."""
        made = await self.api.create(self._resource(body), body, namespace=_namespace(body))
        return {**body, "metadata": {**body["metadata"], **made.metadata}}

    async def edit(self, body: Mapping[str, Any], patch: Mapping[str, Any]) -> None:
        await self.api.patch(self._resource(body), body["metadata"]["name"], patch, namespace=NAMESPACE)

    async def status(self, body: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        name = body["metadata"]["name"]
        kind = self._resource(body)
        await self.api.patch(kind, name, {"status": status}, namespace=NAMESPACE, subresource="status")

    async def pod(self, body: Mapping[str, Any]) -> Pod:
        spec = {"schedulerName": names.SCHEDULER_NAME, **body["spec"]}
        return await self.api.create(PODS, {**body, "spec": spec}, namespace=_namespace(body))

    async def namespace(self, name: str) -> None:
        """Have what pods of a namespace need."""
        await self.api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=name)

    async def bind(self, name: str) -> None:
        binding = Binding(metadata=ObjectMeta(name=name), target=ObjectReference(kind="Node", name="n1"))
        await self.api.bind(NAMESPACE, name, binding)

    def _resource(self, body: Mapping[str, Any]) -> Resource[Object]:
        group, _, version = body["apiVersion"].rpartition("/")
        kind = next(each for each in self.server.types if (each.group, each.kind) == (group, body["kind"]))
        return Resource(
            group=group, version=version, plural=kind.plural, kind=kind.kind, namespaced=kind.namespaced, type=Object
        )

    # --- what is looked at
    async def get(self, name: str, namespace: str = NAMESPACE) -> Pod:
        return await self.api.get(PODS, name, namespace=namespace)

    async def group_of(self, name: str, namespace: str = NAMESPACE) -> str:
        return ((await self.get(name, namespace)).metadata.annotations or {}).get(names.POD_GROUP_NAME, "")

    async def part_of(self, name: str) -> str:
        return ((await self.get(name)).metadata.labels or {}).get(names.SUBGROUP_LABEL, "")

    async def groups(self) -> dict[str, PodGroup]:
        return {each.metadata.name: each for each in (await self.api.list(POD_GROUPS)).items}

    async def group(self) -> PodGroup:
        (found,) = (await self.groups()).values()
        return found

    async def notes(self) -> list[str]:
        return [event.note for event in (await self.api.list(EVENTS)).items]

    async def settle(self, seconds: float = SETTLE_S) -> None:
        await anyio.sleep(seconds)

    def did(self, user: str = USER) -> list[str]:
        """What a user asked beside lists and watches, in order: "verb Kind", and the status of a refusal."""
        return [
            f"{entry.verb} {entry.resource}{'' if entry.code < 300 else f' {entry.code}'}"
            for entry in self.server.audit
            if entry.user == user and entry.verb not in {"list", "watch"} and entry.resource not in {"", "events"}
        ]

    def writes(self, user: str = USER) -> list[str]:
        return [each for each in self.did(user) if not each.startswith("get ")]

    async def until(self, condition: Callable[..., Awaitable[bool]], *about: Any, limit_s: float = 300.0) -> None:
        with anyio.fail_after(limit_s):
            while not await condition(*about):  # noqa: ASYNC110 - what it waits for is on the server
                await anyio.sleep(0.05)

    async def is_grouped(self, name: str) -> bool:
        try:
            return bool(await self.group_of(name))
        except errors.NotFound:
            return False


def _namespace(body: Mapping[str, Any]) -> str:
    return str(body["metadata"].get("namespace") or NAMESPACE)


@asynccontextmanager
async def cluster(
    *, started: bool = True, types: Sequence[ResourceType] = (), **settings: Any
) -> AsyncIterator[Cluster]:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(5), auto_namespaces=True, extra_types=(*TYPES, *types))
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        made = Cluster(server, tasks, WorkloadSettings(**settings))
        await made.namespace(NAMESPACE)
        if started:
            await made.start()
        yield made
        tasks.cancel_scope.cancel()
