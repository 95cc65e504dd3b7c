"""One incarnation of an agent that makes MIG slices, and what kubelet knows of these on a simulated machine.

``GpuPartitioner`` and ``Publishing`` are the agent's own (nodeagent/). The device plug-in is played: it lists the
slices that exist, and sends the list when slices or ``withdrawn`` have changed.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.resources import PODS
from kube.watch.reflector import Reflector
from kube.watch.signal import Signal
from nodeagent.core.devices import Card
from nodeagent.core.mig_partitioning import NotDone, Outcome
from nodeagent.kubeletapi.client import Devices, Life, PodDevices, Unanswered
from nodeagent.mig.partitioning import DeviceLists, Driver, GpuPartitioner
from nodeagent.report.devices import Books
from nodeagent.report.gpunode import Publishing
from simulator.mig.hardware import CARD_MIB, PRODUCT, SlicedMachine
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Held, Record
from simulator.nodes.kubelet import Kubelet
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
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What an agent has of its machine.

    ``listed`` is called with what the plug-in sends to kubelet: its devices, and the UUIDs of those that are unhealthy.
    """

    node: str
    api: Api
    machine: SlicedMachine
    driver: Driver
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
            await anyio.sleep(_LOOK_S)

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
