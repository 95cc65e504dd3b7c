"""An autoscaler beside the simulated cluster, which knows nothing of Moorage.

As the real ones do, it looks at pods that name no node and say ``Unschedulable``, whoever schedules them, tries where
their requests would fit on what is free, and adds machines for the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from kube.client.resources import NODES, PODS
from scheduler.settings import ScalingSettings, SchedulerSettings
from simulator.world import World, WorldSettings
from tests.scheduler.stage import api_of, phases, stage
from wire import names
from wire.core import Node, Pod

SETTINGS = WorldSettings(seed=1, scheduler=SchedulerSettings(scaling=ScalingSettings()))


@dataclass(slots=True)
class Autoscaled:
    """A cluster of which the ``spare`` machines are there only when somebody adds them. ``added`` is when, by name."""

    world: World
    spare: list[str]
    #: How long a machine takes to come, and how often one looks whether one is needed.
    boot_s: float = 30.0
    look_s: float = 10.0
    added: dict[str, float] = field(default_factory=dict)

    @property
    def scaling_pods(self) -> list[dict[str, Any]]:
        """All scaling pods."""
        return [raw for raw in self.world.pods if raw["metadata"]["namespace"] == names.SCALE_ADJUST_NAMESPACE]

    @property
    def scaling_names(self) -> list[str]:
        """Their names, sorted."""
        return sorted(raw["metadata"]["name"] for raw in self.scaling_pods)

    def made(self) -> int:
        """How many scaling pods have been made so far."""
        return sum(
            (entry.verb, entry.resource, entry.namespace) == ("create", "pods", names.SCALE_ADJUST_NAMESPACE)
            and entry.code < 300
            for entry in self.world.server.audit
        )

    async def until_all_run(self, *, within_s: float) -> None:
        """Wait until all of the team's pods run and no scaling pod is left."""
        with anyio.fail_after(within_s):
            while self.scaling_pods or set(phases(self.world).values()) != {names.RUNNING}:  # noqa: ASYNC110 - untold
                await anyio.sleep(1)

    async def add(self) -> None:
        """Have a machine come, for whatever reason."""
        name = self.spare.pop(0)
        self.added[name] = anyio.current_time()
        await self.world.nodes.register(name)

    async def scale(self) -> None:
        """Add machines for unschedulable pods that fit nowhere, as long as there are spare ones."""
        api = api_of(self.world, "autoscaler")
        while True:
            await anyio.sleep(self.look_s)
            wanted = self._machines((await api.list(PODS)).items, (await api.list(NODES)).items)
            if wanted:
                await anyio.sleep(self.boot_s)
                for _ in range(wanted):
                    await self.add()

    def _machines(self, pods: list[Pod], nodes: list[Node]) -> int:
        """How many of the spare machines it takes so that all unschedulable pods fit, as far as they can."""
        room = {node.metadata.name: (_capacity(node), node.metadata.labels or {}) for node in nodes}
        for pod in pods:
            if pod.spec.node_name in room and pod.status.phase not in names.ENDED_PHASES:
                _take(room, pod.spec.node_name, pod)
        coming = 0
        for pod in filter(_is_unschedulable, pods):
            while not (fitting := _fitting(room, pod)) and coming < len(self.spare):
                kubelet = self.world.nodes[self.spare[coming]]
                room[kubelet.shape.name] = len(kubelet.devices), kubelet.labels
                coming += 1
            if fitting:
                _take(room, fitting, pod)
        return coming


@asynccontextmanager
async def autoscaled(
    *shapes: str, spare: int, scales: bool = True, settings: WorldSettings = SETTINGS
) -> AsyncIterator[Autoscaled]:
    """Run a cluster whose last ``spare`` machines are not there yet."""
    async with stage(*shapes, settings=settings) as world:
        waiting = sorted(world.nodes.kubelets)[-spare:] if spare else []
        for name in waiting:
            await world.api.delete(NODES, name)
        it = Autoscaled(world, waiting)
        async with anyio.create_task_group() as tasks:
            if scales:
                tasks.start_soon(it.scale)
            yield it
            tasks.cancel_scope.cancel()


_Room = dict[str, tuple[int, dict[str, str]]]


def _is_unschedulable(pod: Pod) -> bool:
    told = (c for c in pod.status.conditions or () if c.type == names.CONDITION_POD_SCHEDULED)
    says = any((c.status, c.reason) == ("False", names.REASON_UNSCHEDULABLE) for c in told)
    return says and not pod.spec.node_name and pod.metadata.deletion_timestamp is None


def _gpus(pod: Pod) -> int:
    return sum(int((container.resources.limits or {}).get(names.GPU_RESOURCE, 0)) for container in pod.spec.containers)


def _capacity(node: Node) -> int:
    return int((node.status.allocatable or {}).get(names.GPU_RESOURCE, 0))


def _take(room: _Room, node: str, pod: Pod) -> None:
    free, labels = room[node]
    room[node] = free - _gpus(pod), labels


def _fitting(room: _Room, pod: Pod) -> str:
    """The first node by name that a pod may be on and that has its GPUs free; "" if there is none."""
    wanted: Iterable[tuple[str, str]] = (pod.spec.node_selector or {}).items()
    fitting = (
        name
        for name, (free, labels) in sorted(room.items())
        if free >= _gpus(pod) and all(labels.get(key) == value for key, value in wanted)
    )
    return next(fitting, "")
