"""Scenarios on a simulated node: all of Moorage in virtual time (simulator/world.py)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio

from kube.client.api import Api
from kube.client.resources import NODES, PODS
from simulator.checks.observer import Observer
from simulator.clock import VirtualClock
from simulator.nodes import shape
from simulator.nodes.ground_truth import Started
from simulator.nodes.kubelet import Kubelet
from simulator.nodes.shape import KubeletSettings, NodeShape
from simulator.world import World, WorldSettings
from tests.node.histories.scenarios import MOST_PODS, NODE
from tests.node.histories.telling import Telling
from tests.node.pods import NAMESPACE
from wire import names

_CARD_MIB = shape.parse(["1x1x80GiB"])[0].cards_mib[0]


class SimulatedStage:
    """One node of a world."""

    def __init__(self, world: World) -> None:
        self.telling = Telling()
        self._world = world
        self._uids: dict[str, str] = {}

    @property
    def _kubelet(self) -> Kubelet:
        return self._world.nodes[NODE]

    @property
    def _api(self) -> Api:
        return self._world.api

    def observe(self, _plural: str, event: str, raw: dict[str, Any]) -> None:
        """Take a pod as the API server tells it."""
        self._uids[raw["metadata"]["name"]] = raw["metadata"]["uid"]
        self.telling.pod(event, raw)

    async def create(self, *pods: dict[str, Any]) -> None:
        """Create pods."""
        for wanted in pods:
            await self._api.create(PODS, wanted, namespace=NAMESPACE)

    async def delete(self, *pods: str, grace_s: int | None = None) -> None:
        """Delete pods."""
        for name in pods:
            await self._api.delete(PODS, name, namespace=NAMESPACE, uid=self._uids[name], grace_s=grace_s)

    async def kill(self, name: str) -> None:
        """Kill the process of a pod's container."""
        self._kubelet.kill(self._uids[name])

    async def end(self, name: str) -> None:
        """It ends when its time is over."""

    async def stop_kubelet(self) -> None:
        """A kubelet that is not there is one that hears and says nothing."""
        self._kubelet.freeze()

    async def start_kubelet(self) -> None:
        """It hears of all that happened."""
        self._kubelet.thaw()

    async def stop_plugin(self) -> None:
        """No device is offered."""
        self._kubelet.intake.plugin_is_down = True
        await self._world.nodes.tell(NODE)

    async def start_plugin(self) -> None:
        """All are offered."""
        self._kubelet.intake.plugin_is_down = False
        await self._world.nodes.tell(NODE)

    async def reboot(self, *, plugin: bool) -> None:
        """Lose power, and have it back."""
        self._kubelet.die()
        await anyio.sleep(1)
        self._kubelet.boot(plugin=plugin)
        await self._world.nodes.tell(NODE)

    async def fall_ill(self, name: str) -> None:
        """Have the devices of a pod called unhealthy."""
        held = self._kubelet.intake.manager.held_by_pod(self._uids[name]) if name else ()
        for device in self._kubelet.devices:
            await self._kubelet.tell_health(device.uuid, is_ill=device in held)
        await self._world.nodes.tell(NODE)

    async def seen(self, name: str) -> set[str]:
        """What the newest life of the pod's container was shown."""
        uid = self._uids[name]
        runs = [
            one for one in self._world.nodes.ground_truth.history if isinstance(one, Started) and one.pod_uid == uid
        ]
        return set(runs[-1].devices)

    async def offers(self) -> int:
        """What the node's object says."""
        node = await self._api.get(NODES, NODE)
        return int((node.status.allocatable or {})[names.GPU_RESOURCE])


@contextlib.asynccontextmanager
async def simulated() -> AsyncIterator[SimulatedStage]:
    """A world with one node, and Moorage on it."""
    node = NodeShape(name=NODE, cards_mib=(_CARD_MIB,) * 2, pods=MOST_PODS)
    clock = VirtualClock(asyncio.get_running_loop())
    settings = WorldSettings(kubelet=KubeletSettings(image_visible_devices=""))
    async with World([node], clock=clock, settings=settings) as world, anyio.create_task_group() as group:
        stage = SimulatedStage(world)
        await group.start(Observer(world.server.transport("history"), PODS.plural, stage.observe).run)
        yield stage
        group.cancel_scope.cancel()
