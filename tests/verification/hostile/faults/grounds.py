"""A small cluster for one fault, and what these tests do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from kube.client.errors import Unreachable
from kube.client.resources import NODES, PODS
from kube.client.transport import Response
from simulator.clock import VirtualClock
from simulator.components import PRODUCT
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from verification.hostile.faults.ground import Ground, Timed
from verification.hostile.versions import Versions
from wire.core import Node, Pod

NAMESPACE = "team"
HALF = {"gpu-fraction": "0.5"}
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@dataclass(slots=True)
class Stage:
    """A world, its ground, and a task group in which faults strike."""

    world: World
    ground: Ground
    group: TaskGroup

    def strike(self, fault: Timed) -> None:
        self.group.start_soon(fault.strike, self.ground)

    @property
    def now_s(self) -> float:
        """Seconds since the faults' 0."""
        return anyio.current_time() - self.ground.start_s

    async def until(self, at_s: float) -> None:
        await self.ground.wait_until(at_s)

    async def pod(self, name: str, *, gpus: int = 0, **annotations: str) -> Pod:
        """Create a pod as a user does; underscores of keywords stand for dashes."""
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        container = {"name": "main", "image": "work", "resources": {"limits": limits}}
        manifest = {
            "metadata": {"name": name, "annotations": {k.replace("_", "-"): v for k, v in annotations.items()}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
        }
        return await self.world.api.create(PODS, manifest, namespace=NAMESPACE)

    async def read(self, name: str) -> Pod:
        return await self.world.api.get(PODS, name, namespace=NAMESPACE)

    async def phase(self, name: str) -> str:
        return (await self.read(name)).status.phase

    async def node(self, name: str = "node-0") -> Node:
        return await self.world.api.get(NODES, name)

    async def request(self, user: str, method: str = "POST", path: str = CONFIG_MAPS, **kwargs: Any) -> Response:
        """One request of a component, made in its name."""
        body = kwargs.pop("body", {"metadata": {"name": kwargs.pop("name", "c")}} if method == "POST" else None)
        return await self.world.server.transport(user).request(
            method,
            path,
            query={},
            body=None if body is None else msgspec.json.encode(body),
            content_type="application/merge-patch+json" if method == "PATCH" else "application/json",
            timeout_s=kwargs.pop("timeout_s", 10),
        )

    async def exists(self, name: str = "c") -> bool:
        return (await self.request("user", "GET", f"{CONFIG_MAPS}/{name}")).status == 200


@asynccontextmanager
async def stage(*nodes: str, **settings: Any) -> AsyncIterator[Stage]:
    clock, versions = VirtualClock(asyncio.get_running_loop()), Versions()
    shapes, parts = shape.parse(nodes or ["1x2x40GiB"]), versions.beside(PRODUCT)
    async with (
        World(shapes, clock=clock, settings=WorldSettings(**settings), parts=parts) as world,
        anyio.create_task_group() as group,
    ):
        yield Stage(world, Ground(world, versions), group)
        group.cancel_scope.cancel()


@dataclass(slots=True)
class Heard:
    """What one watch heard: (seconds since it began, type of event, name)."""

    lines: list[tuple[float, str, str]] = field(default_factory=list)
    broke_at_s: list[float] = field(default_factory=list)
    version: str = ""

    @property
    def names(self) -> list[str]:
        return [name for _, _, name in self.lines]


async def listen(on: Stage, heard: Heard, *, user: str = "binder", plural: str = "configmaps") -> None:
    """Watch for ever as a component does, from the version last seen; 410 ends it."""
    listing = await on.request(user, "GET", f"/api/v1/namespaces/{NAMESPACE}/{plural}")
    heard.version = msgspec.json.decode(listing.body)["metadata"]["resourceVersion"]
    while True:
        try:
            if not await _listen_once(on, heard, user=user, plural=plural):
                return
        except Unreachable:
            heard.broke_at_s.append(round(on.now_s, 3))
            await anyio.sleep(0.1)


async def _listen_once(on: Stage, heard: Heard, *, user: str, plural: str) -> bool:
    query = {"watch": "1", "resourceVersion": heard.version}
    stream = on.world.server.transport(user).stream(
        f"/api/v1/namespaces/{NAMESPACE}/{plural}", query=query, timeout_s=5
    )
    async with stream as (head, lines):
        if head.status != 200:
            heard.lines.append((round(on.now_s, 3), str(head.status), ""))
            return False
        async for line in lines:
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                heard.lines.append((round(on.now_s, 3), "ERROR", str(event["object"]["code"])))
                return False
            meta = event["object"]["metadata"]
            heard.version = meta["resourceVersion"]
            heard.lines.append((round(on.now_s, 3), event["type"], meta["name"]))
    return True
