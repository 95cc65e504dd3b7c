"""The API server as the benches use it: nodes as objects, pods created at once or at a rate, everything cleared away.

Bodies are written as they are and answers are not decoded: what the bench itself costs is taken from the same
processors as what it measures. Two light watches say when pods were created, bound and given a reason to wait, and when
events were written. All times are those at which this process read the event, so what a watch costs is in no
difference.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskStatus

from bench import objects
from bench.objects import Manifest
from kube.client import config
from kube.client.api import check
from kube.client.errors import NotFound
from kube.client.http import HttpTransport
from kube.client.listing import WHOLE_BYTES
from kube.client.transport import Transport
from tools.cluster.plane import ControlPlane

_WATCH_TIMEOUT_S = 10.0


class _Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[_Condition, ...] = ()


class _Seen(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: _Seen = _Seen()


_WAITS = _Condition(type="PodScheduled", status="False")

_event = msgspec.json.Decoder(_Event)
_list = msgspec.json.Decoder(_Seen)


class Observer:
    """Watches the pods of a namespace. Times are the event loop's."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.created_at: dict[str, float] = {}
        self.bound_at: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        #: When a pod was first seen with a reason why it waits.
        self.refused_at: dict[str, float] = {}
        #: Events so far: one a write.
        self.seen = 0
        self._transport = transport
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._version = ""
        self._awaited: set[str] = set()
        self._all_bound = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch from now on, until cancelled.

        Raises kube.client.errors.ApiError: a bench that missed events is void.
        """
        head = check(await self._transport.request("GET", self._path, query={"limit": "1"}, timeout_s=_WATCH_TIMEOUT_S))
        self._version = _list.decode(head.body).metadata.resource_version
        started = False
        while True:
            query = {"watch": "true", "resourceVersion": self._version}
            async with self._transport.stream(self._path, query=query, timeout_s=_WATCH_TIMEOUT_S) as (answer, lines):
                check(answer)
                if not started:
                    task_status.started()
                    started = True
                async for line in lines:
                    self._take(_event.decode(line))

    def _take(self, event: _Event) -> None:
        name, node = event.object.metadata.name, event.object.spec.node_name
        if event.type == "ERROR":
            raise RuntimeError("the watch of the bench failed")
        self._version = event.object.metadata.resource_version
        now = anyio.current_time()
        self.seen += 1
        self.created_at.setdefault(name, now)
        if name not in self.refused_at and _WAITS in event.object.status.conditions:
            self.refused_at[name] = now
        if node and name not in self.bound_at:
            self.bound_at[name] = now
            self.nodes[name] = node
            self._awaited.discard(name)
            if not self._awaited:
                self._all_bound.set()

    async def bound(self, names: Sequence[str], *, within_s: float) -> None:
        """Wait until all these pods are bound. Raises TimeoutError with how many are."""
        self._awaited = set(names) - self.bound_at.keys()
        self._all_bound = anyio.Event()
        with anyio.move_on_after(within_s):
            if self._awaited:
                await self._all_bound.wait()
        if self._awaited:
            raise TimeoutError(f"{len(self._awaited)} of {len(names)} pods were not bound within {within_s:.0f} s")

    def waits_s(self, names: Sequence[str]) -> list[float]:
        """Created to bound, of each of these pods."""
        return [self.bound_at[name] - self.created_at[name] for name in names]


_ADDED = b'{"type":"ADDED"'


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _List(msgspec.Struct, frozen=True):
    metadata: _Head


class EventWatch:
    """Counts the "Scheduled" events that are written to a namespace. Times are the event loop's."""

    def __init__(self, transport: Transport, path: str) -> None:
        self.count = 0
        self.last_at = -math.inf
        self._transport = transport
        self._path = path
        self._more = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch from now on, until cancelled. Raises RuntimeError when the server ends the watch."""
        listed = check(
            await self._transport.request("GET", self._path, query={"limit": "1"}, timeout_s=_WATCH_TIMEOUT_S)
        )
        version = msgspec.json.decode(listed.body, type=_List).metadata.resource_version
        query = {"watch": "true", "fieldSelector": "reason=Scheduled", "resourceVersion": version}
        async with self._transport.stream(self._path, query=query, timeout_s=_WATCH_TIMEOUT_S) as (answer, lines):
            check(answer)
            task_status.started()
            async for line in lines:
                if line.startswith(_ADDED):
                    self.count += 1
                    self.last_at = anyio.current_time()
                    self._more.set()
        raise RuntimeError("the watch of events has ended")

    async def written(self, count: int, *, within_s: float) -> None:
        """Wait for so many events. Raises TimeoutError with how many there are."""
        with anyio.move_on_after(within_s):
            while self.count < count:
                self._more = anyio.Event()
                await self._more.wait()
        if self.count < count:
            raise TimeoutError(f"{self.count} of {count} events were written within {within_s:.0f} s")


NAMESPACE = "bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
POD_GROUPS = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{NAMESPACE}/podgroups"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
_NODES = "/api/v1/nodes"
_TIMEOUT_S = 60.0
_IN_FLIGHT = 32
_POLL_S = 0.2
_CLEAR_WITHIN_S = 120.0


class Stage:
    """One control plane's objects, through the administrator's eyes."""

    def __init__(self, transport: Transport) -> None:
        self.transport: Transport = transport

    async def set(self, nodes: int, *, zones: int = 0) -> None:
        """Make the nodes and the namespace."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await self.send("POST", "/api/v1/namespaces", space)
        await self.create(_NODES, objects.nodes(nodes, zones=zones))
        await until(self._has_account, "the default service account", within_s=_TIMEOUT_S)

    async def create(self, path: str, manifests: Sequence[Manifest]) -> None:
        """Create objects as fast as some calls in flight allow."""
        await self._send_all([("POST", path, manifest) for manifest in manifests])

    async def delete(self, path: str, names: Sequence[str]) -> None:
        """Delete objects likewise, at once: the server deletes collections one object after the other."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await self._send_all([("DELETE", f"{path}/{name}", options) for name in names])

    async def patch_all(self, paths: Sequence[str], patch: Manifest) -> None:
        """Merge the same into all of these objects likewise."""
        await self._send_all([("PATCH", path, patch) for path in paths])

    async def _send_all(self, calls: Sequence[tuple[str, str, Manifest]]) -> None:
        waiting = iter(calls)

        async def work() -> None:
            for method, path, body in waiting:
                await self.send(method, path, body)

        async with anyio.create_task_group() as tasks:
            for _ in range(_IN_FLIGHT):
                tasks.start_soon(work)

    async def arrive(self, manifests: Sequence[Manifest], *, per_s: float) -> None:
        """Create pods one after the other at a steady rate, however long each creation takes."""
        start = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for number, manifest in enumerate(manifests):
                await anyio.sleep_until(start + number / per_s)
                tasks.start_soon(self.send, "POST", PODS, manifest)

    async def served(self, path: str) -> None:
        """Wait until a kind is served: its definition may have been written just now. Raises TimeoutError."""
        await until(lambda: self._is_served(path), path, within_s=_TIMEOUT_S)

    async def clear(self) -> None:
        """Delete pods and events, and wait until the pods are gone."""
        await self.send("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        await until(self._is_empty, "the pods to go", within_s=_CLEAR_WITHIN_S)
        await self.send("DELETE", EVENTS, {"kind": "DeleteOptions", "apiVersion": "v1"})

    async def count(self, path: str) -> int:
        """How many objects there are; only one of them is sent."""
        found = await self.send("GET", path, query={"limit": "1"})
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    async def send(
        self, method: str, path: str, body: Manifest | None = None, *, query: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """One call. Creations and deletions return nothing: their answers are not decoded."""
        answer = check(
            await self.transport.request(
                method,
                path,
                query=query or {},
                body=msgspec.json.encode(body) if body is not None else None,
                content_type="application/merge-patch+json" if method == "PATCH" else "application/json",
                timeout_s=_TIMEOUT_S,
                most_bytes=WHOLE_BYTES,
            )
        )
        found: dict[str, Any] = msgspec.json.decode(answer.body) if method == "GET" else {}
        return found

    async def _is_served(self, path: str) -> bool:
        try:
            await self.count(path)
        except NotFound:
            return False
        return True

    async def _is_empty(self) -> bool:
        return await self.count(PODS) == 0

    async def _has_account(self) -> bool:
        """Pods can't be created before the namespace has its default service account."""
        try:
            await self.send("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default")
        except NotFound:
            return False
        return True


async def until(holds: Callable[[], Awaitable[bool]], what: str, *, within_s: float) -> None:
    """Ask again and again. Raises TimeoutError."""
    with anyio.move_on_after(within_s):
        while True:
            if await holds():
                return
            await anyio.sleep(_POLL_S)
    raise TimeoutError(f"waited {within_s:.0f} s for {what}")


def transport(plane: ControlPlane, token: str = "") -> HttpTransport:
    """A connection pool under the administrator's identity, or under that of a token."""
    ca_file = plane.folder / "ca.crt"
    return HttpTransport(config.plain(plane.url, ca_file=str(ca_file), token=token or plane.token), user_agent="bench")


@asynccontextmanager
async def stage(plane: ControlPlane, *, nodes: int, zones: int = 0) -> AsyncIterator[Stage]:
    """A stage that is set."""
    async with transport(plane) as opened:
        made = Stage(opened)
        await made.set(nodes, zones=zones)
        yield made


@asynccontextmanager
async def observed(seen: Stage) -> AsyncIterator[Observer]:
    """An observer that watches as long as the context lasts."""
    async with anyio.create_task_group() as tasks:
        observer = Observer(seen.transport, NAMESPACE)
        await tasks.start(observer.run)
        yield observer
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def events_watched(seen: Stage) -> AsyncIterator[EventWatch]:
    """A watch of the events of bindings that lasts as long as the context."""
    async with anyio.create_task_group() as tasks:
        watch = EventWatch(seen.transport, EVENTS)
        await tasks.start(watch.run)
        yield watch
        tasks.cancel_scope.cancel()
