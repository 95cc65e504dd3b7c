"""Simulated nodes whose GPUs are cut on demand: hardware, kubelet's side and one agent after another on each.

``GpuPartitioner`` and ``Publishing`` are the agent's own (nodeagent/). The device plug-in is played: it lists the
slices that exist, and sends the list when slices or ``withdrawn`` have changed. The nodes are added to a world
(simulator/world.py) that is ready. Imported by those who do so only: the agent's code loads more than a demo needs.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import NODES, PODS
from kube.client.retry import Retry
from kube.watch.reflector import Reflector
from kube.watch.signal import Signal
from nodeagent.core.devices import Card
from nodeagent.core.mig_partitioning import NotDone, Outcome
from nodeagent.kubeletapi.client import Devices, Life, PodDevices, Unanswered
from nodeagent.mig import partitioning
from nodeagent.mig.partitioning import DeviceLists, GpuPartitioner
from nodeagent.report.devices import Books
from nodeagent.report.gpunode import Publishing
from simulator.apiserver.transport import MemoryTransport
from simulator.mig.hardware import CARD_MIB, PRODUCT, Driver, SlicedMachine, SlicedNode
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Held, Record
from simulator.nodes.kubelet import Kubelet
from simulator.policies import AGENT
from simulator.world import World
from wire import names
from wire.core import Pod
from wire.crds.gpunode import PLUGIN_OWN, AgentStatus, GpuNode

#: A pod is shown in less than this after it was given its devices (nodeagent/core/mig_partitioning.py).
_SHOWN_S: Final = 1.9


@dataclass(slots=True)
class KubeletSide:
    """nodeagent.mig.partitioning.Kubelet of one machine: the list that the plug-in sent it, and what it shows of pods.

    It reads the list late. It gives a slice at once, and shows the pod that has it up to two seconds later. After a
    restart it shows no pod for a while, and offers nothing before the plug-in has registered. ``told`` is called when
    the node offers other devices.
    """

    kubelet: Kubelet
    rng: random.Random
    told: Callable[[], None] = lambda: None
    _life: int = 1
    _blind_until_s: float = 0.0
    #: Since when each pod (UID) has its slices, and when kubelet shows that.
    _shown_s: dict[str, float] = field(default_factory=dict)
    #: Devices of other kinds than slices on demand, which another plug-in serves.
    _plain: tuple[Device, ...] = ()

    def __post_init__(self) -> None:
        self._plain = self.kubelet.devices

    def recorded(self, record: Record) -> None:
        """Take what happened on a machine."""
        if isinstance(record, Held) and record.node == self.kubelet.shape.name:
            self._shown_s[record.pod_uid] = anyio.current_time() + self.rng.uniform(0.0, _SHOWN_S)

    def hear(self, listed: Collection[Device], withdrawn: Collection[str]) -> None:
        """Read the plug-in's list; ``withdrawn`` are unhealthy."""
        manager = self.kubelet.intake.manager
        manager.known.update(device.resource for device in listed)
        manager.order = (*self._plain, *listed)
        manager.withdrawn = {device.uuid for device in listed} & set(withdrawn)
        self.told()

    def lose_plugin(self) -> None:
        """Notice that the plug-in is gone: none of its devices is healthy."""
        manager = self.kubelet.intake.manager
        manager.withdrawn.update(device.uuid for device in manager.order if device.is_slice)
        self.told()

    def restart(self, blind_s: float) -> None:
        """Be another process, which shows no pods for a time. What pods have is in its checkpoint."""
        self._life += 1
        self._blind_until_s = anyio.current_time() + blind_s
        self.lose_plugin()

    # --- what it answers on its socket -------------------------------------------------------------------------------

    def life(self) -> Life:
        """Tell one kubelet from the next."""
        return (self._life, 0) if self.kubelet.is_on else None

    async def list(self) -> tuple[PodDevices, ...]:
        """Return what pods were given. Raises Unanswered."""
        self._reach()
        if anyio.current_time() < self._blind_until_s:
            return ()
        return tuple(self._pods())

    async def allocatable(self) -> tuple[Devices, ...]:
        """Return all devices that would be given. Raises Unanswered."""
        self._reach()
        manager = self.kubelet.intake.manager
        return tuple(
            Devices(device.resource, (device.uuid,)) for device in manager.order if device.uuid not in manager.unusable
        )

    def _pods(self) -> Iterator[PodDevices]:
        manager, now_s = self.kubelet.intake.manager, anyio.current_time()
        for uid in sorted(manager.pods):
            if self._shown_s.get(uid, 0.0) <= now_s:
                given = (Devices(device.resource, (device.uuid,)) for device in manager.held_by_pod(uid))
                yield PodDevices("", uid, tuple(given))

    def _reach(self) -> None:
        if not self.kubelet.is_on:
            raise Unanswered("nobody listens")


#: How often the plug-in looks for something to send.
_AGENT_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What an agent has of its machine.

    ``listed`` is called with what the plug-in sends to kubelet: its devices, and the UUIDs of those that are unhealthy.
    """

    node: str
    api: Api
    machine: SlicedMachine
    driver: partitioning.Driver
    kubelet: DeviceLists
    rng: random.Random
    listed: Callable[[Sequence[Device], Collection[str]], None]


class MigAgent:
    """Runs until it is cancelled. ``partitioner`` makes what does the steps: tests plant mistakes."""

    def __init__(self, around: Around, partitioner: type[GpuPartitioner] = GpuPartitioner) -> None:
        self._around = around
        self._publishing = Publishing(around.api, node=around.node, rng=around.rng)
        self._books = Books(Signal())
        self._reservations: Reflector[Pod] = Reflector(
            around.api,
            PODS,
            self._books,
            namespace=names.RESERVATION_NAMESPACE,
            label_selector=f"{names.APP_LABEL}={names.RESERVATION_APP}",
            field_selector=f"spec.nodeName={around.node}",
            rng=around.rng,
        )
        self.partitioner = partitioner(
            around.driver,
            around.kubelet,
            gpu_node=self._asked,
            booked=lambda: self.booked,
            told=self._tell,
            heard=self._heard,
        )
        self._publishing.before_first = self.partitioner.seed

    async def run(self) -> None:
        """Do all of it until cancelled."""
        self._tell()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._publishing.nodes.run)
            tasks.start_soon(self._publishing.gpu_nodes.run)
            tasks.start_soon(self._reservations.run)
            tasks.start_soon(self._publishing.run)
            tasks.start_soon(self._serve)
            await self._publishing.nodes.synced.wait()
            tasks.start_soon(self.partitioner.run)

    async def _serve(self) -> None:
        """Be the plug-in: read the driver, and send what kubelet does not know yet."""
        around, sent = self._around, object()
        while True:
            generation, now = self.partitioner.generation, (self.partitioner.withdrawn, around.kubelet.life())
            if (generation, now) != sent:
                with contextlib.suppress(NotDone):
                    await around.driver.read()
                    self.partitioner.taken(generation)
                    around.listed(around.machine.devices(), self.partitioner.withdrawn)
                    sent = (generation, now)
            await anyio.sleep(_AGENT_LOOK_S)

    # --- what the partitioner asks and tells
    # ------------------------------------------------------------------------------

    @property
    def is_offered(self) -> bool:
        """Whether the Node's label offers its GPUs to be cut."""
        node = self._publishing.node
        return node is not None and (node.metadata.labels or {}).get(names.NODE_MIG) == names.MIG_DYNAMIC

    @property
    def booked(self) -> Collection[str]:
        """UUIDs that reservations name."""
        return [one.uuid for one in self._books.reservations.values() if one.uuid]

    def _asked(self) -> GpuNode | None:
        is_known = self._reservations.synced.is_set()
        return self._publishing.gpu_node if is_known and self.is_offered else None

    def _heard(self, card: str, outcome: Outcome) -> None:
        del card, outcome
        self._tell()

    def _tell(self) -> None:
        cards = tuple(
            Card(
                uuid=uuid,
                index=index,
                product=PRODUCT,
                mem_mib=CARD_MIB,
                has_mig=True,
                slices=tuple(each.uuid for each in instances if each.uuid),
            )
            for index, (uuid, instances) in enumerate(self._around.machine.cards.items())
        )
        self._publishing.tell(cards=cards, slices=self.partitioner.reports, agent=AgentStatus(plugin_mode=PLUGIN_OWN))


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
