"""A small cluster with a node whose agent makes MIG slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from kube.client.resources import GPU_NODES, PODS
from nodeagent.mig.partitioning import GpuPartitioner
from scheduler.settings import PartitioningSettings, SchedulerSettings
from simulator.clock import VirtualClock
from simulator.mig.hardware import SlicedNode
from simulator.mig.nodes import SlicedNodes, SlicedRuntime
from simulator.nodes import shape
from simulator.nodes.shape import NodeShape
from simulator.world import World, WorldSettings
from wire import names

NODE, TEAM = "node-0", "team"
OFFERED = {names.NODE_MIG: names.MIG_DYNAMIC, names.NODE_MIG_STRATEGY: "mixed"}
SETTINGS = WorldSettings(scheduler=SchedulerSettings(partitioning=PartitioningSettings(rest_s=10.0, patience_s=30.0)))


def shapes(*texts: str) -> tuple[NodeShape, ...]:
    """Nodes without other GPUs, of which the GPUs in MIG mode are offered."""
    made = shape.parse(texts or ("1x0",))
    return tuple(NodeShape(name=each.name, cards_mib=each.cards_mib, labels=OFFERED) for each in made)


@dataclass(frozen=True, slots=True)
class Stage:
    world: World
    nodes: SlicedNodes

    @property
    def node(self) -> SlicedRuntime:
        return self.nodes.of[NODE]

    @property
    def spots(self) -> list[str]:
        """Slices of the first GPU."""
        instances = next(iter(self.node.machine.cards.values()))
        return sorted(f"{each.spot.profile}@{each.spot.start}" for each in instances)

    async def pod(self, name: str, profile: str, *, node: str = "", run_s: str = "") -> None:
        limits = {names.MIG_RESOURCE_PREFIX + profile: "1"}
        container = {"name": "main", "image": "work", "resources": {"limits": limits}}
        spec: dict[str, Any] = {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}
        if node:
            spec |= {"nodeName": node, "schedulerName": "default-scheduler"}
        await self.world.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=TEAM)

    async def phase(self, name: str) -> str:
        return (await self.world.api.get(PODS, name, namespace=TEAM)).status.phase

    async def partitioning(self) -> str:
        """What became of the last attempt."""
        cards = (await self.world.api.get(GPU_NODES, NODE)).status.cards or []
        return "".join(card.partitioning.state for card in cards if card.partitioning is not None)

    async def until(self, condition: Callable[[], bool], *, within_s: float = 60.0) -> bool:
        with anyio.move_on_after(within_s):
            while not condition():  # noqa: ASYNC110 - the machine is plain data
                await anyio.sleep(0.1)
            return True
        return False


@asynccontextmanager
async def stage(*slices: str, partitioner: type[GpuPartitioner] = GpuPartitioner, **more: Any) -> AsyncIterator[Stage]:

    clock = VirtualClock(asyncio.get_running_loop())
    async with World(shapes(), clock=clock, settings=SETTINGS) as world:
        sliced = {"hears_s": 0.0, "tells_s": 0.0, **more}
        nodes = SlicedNodes([SlicedNode(node=NODE, cards=(slices,), **sliced)], world, partitioner)
        nodes.begin()
        yield Stage(world, nodes)
