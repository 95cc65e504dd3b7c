"""Simulated nodes whose GPUs are cut on demand: hardware, kubelet's side and one agent after another on each.

They are added to a world (simulator/world.py) that is ready. Imported by those who do so only: the agent's code loads
more than a demo needs.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import NODES
from kube.client.retry import Retry
from nodeagent.mig.partitioning import GpuPartitioner
from simulator.apiserver.transport import MemoryTransport
from simulator.mig.agent import Around, KubeletSide, MigAgent
from simulator.mig.hardware import Driver, SlicedMachine, SlicedNode
from simulator.nodes.device_manager import Device
from simulator.nodes.kubelet import Kubelet
from simulator.policies import AGENT
from simulator.world import World

#: How often a machine looks whether it has power and a line, for its agent.
_LOOK_S: Final = 0.25
#: How often kubelet compares its Node with what it offers.
_TELLS_S: Final = 10.0


class SlicedRuntime:
    """One node of a cluster that is ready. ``partitioner`` makes what does the agent's steps."""

    def __init__(self, node: SlicedNode, world: World, partitioner: type[GpuPartitioner]) -> None:
        self.node = node
        self.kubelet: Kubelet = world.nodes[node.node]
        self._world = world
        self._partitioner = partitioner
        self._source = f"{world.settings.seed}/mig/{node.node}"
        self._rng = random.Random(self._source)
        self.machine = SlicedMachine(node, world.settings.seed, self._users)
        self.side = KubeletSide(self.kubelet, random.Random(f"{self._source}/kubelet"), self._offer)
        self.driver = Driver(self.machine, self._begin, lambda: self.kubelet.is_on)
        self.agent: MigAgent | None = None
        #: How many faults keep the agent down.
        self._held_down = 0
        self._plain = self.kubelet.devices
        self._transport: MemoryTransport | None = None
        self._scope: anyio.CancelScope | None = None
        self._tasks: TaskGroup | None = None
        #: Lists of the plug-in that kubelet has not read yet.
        self._lists: deque[tuple[Sequence[Device], Collection[str]]] = deque()
        self._sent = anyio.Event()
        self._offers = anyio.Event()
        self._changed()
        self.machine.changed = self._changed
        self.machine.destroyed = self._destroyed
        self.kubelet.intake.is_refused = self._refuses
        world.nodes.ground_truth.listeners.append(self.side.recorded)

    async def run(self) -> None:
        """Live until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._hear)
            tasks.start_soon(self._tell)
            tasks.start_soon(self._watch_over)
            await self._agents()

    def hold_down(self) -> None:
        """Kill the agent, and start none before ``let_up``. Then one comes as soon as the driver is idle."""
        self._held_down += 1
        self._crash()

    def let_up(self) -> None:
        """Take back one ``hold_down``."""
        self._held_down -= 1

    def _crash(self) -> None:
        if self._transport is not None:
            self._transport.kill()
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None
        self.agent = None
        self._lists.clear()
        self.side.lose_plugin()

    @property
    def is_offered(self) -> bool:
        """Whether the agent takes its GPUs for offered."""
        return self.agent is not None and self.agent.is_offered

    @property
    def taken(self) -> frozenset[str]:
        """UUIDs of slices that somebody has, or may have."""
        manager = self.kubelet.intake.manager
        held = {device.uuid for uid in manager.pods for device in manager.held_by_pod(uid)}
        booked = self.agent.booked if self.agent is not None else ()
        return frozenset(held | self._users() | set(booked))

    # --- the agent ---------------------------------------------------------------------------------------------------

    async def _agents(self) -> None:
        incarnation = 0
        while True:
            await self._until_it_may_start()
            incarnation += 1
            rng = random.Random(f"{self._source}/{incarnation}")
            self._transport = self._world.server.transport(AGENT)
            api = Api(self._transport, retry=Retry(rng))
            around = Around(
                node=self.node.node,
                api=api,
                machine=self.machine,
                driver=self.driver,
                kubelet=self.side,
                rng=rng,
                listed=self._listed,
            )
            with anyio.CancelScope() as scope:
                self._scope = scope
                self.agent = MigAgent(around, self._partitioner)
                await self.agent.run()
            await anyio.sleep(_LOOK_S)

    async def _until_it_may_start(self) -> None:
        while self._held_down or not self.kubelet.is_on or not self.driver.idle.is_set():  # noqa: ASYNC110 - plain data
            await anyio.sleep(_LOOK_S)

    async def _watch_over(self) -> None:
        """An agent dies with its machine, and loses the line with it."""
        while True:
            await anyio.sleep(_LOOK_S)
            if self._scope is not None and not self.kubelet.is_on:
                self._crash()
            elif self._transport is not None and not self.kubelet.is_answering:
                self._transport.cut()
            elif self._transport is not None:
                self._transport.mend()

    def _begin(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._tasks is None:
            raise RuntimeError("the node has not begun")
        self._tasks.start_soon(run)

    # --- what is between hardware, plug-in and kubelet ---------------------------------------------------------------

    def _users(self) -> set[str]:
        running = self.kubelet.intake.ground_truth.running
        return {uuid for each in running if each.node == self.node.node for uuid in each.devices}

    def _changed(self) -> None:
        self.kubelet.devices = (*self._plain, *self.machine.devices())
        self._world.checker.refitted(self.node.node, self.kubelet.devices)

    def _destroyed(self, uuid: str) -> None:
        now_s, shows_processes = anyio.current_time(), not self.node.is_idle
        self._world.checker.destroyed(self.node.node, uuid, now_s, shows_processes=shows_processes)

    def _refuses(self, device: Device) -> bool:
        """Whether the plug-in refuses to hand a device out: it is withdrawn, or nobody answers."""
        return device.is_slice and (self.agent is None or device.uuid in self.agent.partitioner.withdrawn)

    def _listed(self, devices: Sequence[Device], withdrawn: Collection[str]) -> None:
        self._lists.append((devices, withdrawn))
        self._sent.set()

    async def _hear(self) -> None:
        """Kubelet reads the plug-in's lists, one after the other."""
        while True:
            await self._sent.wait()
            self._sent = anyio.Event()
            while self._lists:
                await anyio.sleep(self._rng.uniform(0.0, self.node.hears_s))
                if self._lists and self.agent is not None:
                    self.side.hear(*self._lists.popleft())

    def _offer(self) -> None:
        self._offers.set()

    async def _tell(self) -> None:
        """Kubelet tells the API server what it offers: after changes, and where the Node shows anything else."""
        name, api = self.node.node, self._world.nodes.api
        while True:
            with anyio.move_on_after(_TELLS_S):
                await self._offers.wait()
                await anyio.sleep(self._rng.uniform(0.0, self.node.tells_s))
            self._offers = anyio.Event()
            if not self.kubelet.is_answering:
                continue
            with contextlib.suppress(errors.ApiError):
                shown = (await api.get(NODES, name)).status
                intake = self.kubelet.intake
                pairs = ((shown.capacity, intake.manager.listed), (shown.allocatable, intake.offered))
                if not all(_shows(amounts, counts) for amounts, counts in pairs):
                    await self._world.nodes.tell(name)


def _shows(amounts: Mapping[str, Any] | None, counts: Mapping[str, int]) -> bool:
    return all(str((amounts or {}).get(resource, "0")) == str(count) for resource, count in counts.items())


class SlicedNodes:
    """All of them. ``of``: by name."""

    def __init__(
        self, nodes: Sequence[SlicedNode], world: World, partitioner: type[GpuPartitioner] = GpuPartitioner
    ) -> None:
        self._world = world
        self.of: Mapping[str, SlicedRuntime] = {node.node: SlicedRuntime(node, world, partitioner) for node in nodes}

    def begin(self) -> None:
        """Have them live until the cluster ends."""
        for each in self.of.values():
            self._world.start_soon(each.run)
