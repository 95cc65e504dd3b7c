"""Simulated nodes on one API server, in memory or real: registration, leases, one pod stream and one pool of writers.

::

    nodes = NodeSet(transport, shape.parse(["4x8x80GiB"]), clock=clock, seed=1)
    async with anyio.create_task_group() as group:
        await group.start(nodes.run)

Their node agents tell the device of a reservation as soon as kubelet has given it. They judge as the agent of a real
node does (nodeagent/core/report/devices.py), in a shell of their own: an agent hears of pods by a watch that may be
ahead of its kubelet's or behind it, may be slow between an answer and its patch, and may be away.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from gpu import reservation
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import LEASES, NODES, PODS
from kube.client.retry import Retry
from kube.client.transport import Transport
from kube.watch.reflector import Reflector
from nodeagent.core.report.devices import Annotations, held, judge
from reservation.device import Device as Told
from simulator.nodes import node_object
from simulator.nodes.api_access import PodIdentity, always
from simulator.nodes.device_manager import Checkpoints, Device
from simulator.nodes.ground_truth import GroundTruth
from simulator.nodes.kubelet import Kubelet, Surroundings
from simulator.nodes.shape import KubeletSettings, NodeShape
from wire import names
from wire.core import Node, Pod
from wire.rfc3339 import rfc3339, rfc3339_micro

_DEFAULTS: Final = KubeletSettings()


class NotSimulated(Exception):
    """Raised when a node of the wanted name is there and nobody simulates it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"node {name} is there and has no label {node_object.SIMULATED}: a real one is left alone")


class NodeSet:
    """Kubelets for all ``shapes``.

    ``reservation_identity`` is who the reservation processes are (simulator/nodes/api_access.py), by default ourselves.
    Raises simulator.nodes.device_manager.BadCheckpoint.
    """

    def __init__(
        self,
        transport: Transport,
        shapes: Sequence[NodeShape],
        *,
        clock: Clock,
        seed: int,
        ground_truth: GroundTruth | None = None,
        reservation_identity: PodIdentity | None = None,
        settings: KubeletSettings = _DEFAULTS,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        rng = random.Random(f"{seed}/nodes")
        self.ground_truth = ground_truth or GroundTruth()
        self._settings = settings
        self._clock = clock
        self._api = Api(transport, retry=Retry(rng))
        self._rng = rng
        self._writers = anyio.CapacityLimiter(settings.writers)
        self._around = Surroundings(
            api=self._api,
            identity=reservation_identity or always(transport),
            clock=clock,
            ground_truth=self.ground_truth,
            settings=settings,
            writers=self._writers,
            seed=seed,
            checkpoints=checkpoints,
        )
        #: Of the nodes that are registered.
        self._uids: dict[str, str] = {}
        self._given_up = _GivenUp()
        self.kubelets = {shape.name: Kubelet(shape, self._around) for shape in shapes}

    def __getitem__(self, name: str) -> Kubelet:
        """Return a node by name, to give it a fault."""
        return self.kubelets[name]

    @property
    def api(self) -> Api:
        """The calls of kubelets."""
        return self._api

    @property
    def devices(self) -> dict[str, tuple[Device, ...]]:
        """Physical devices of each node."""
        return {name: kubelet.devices for name, kubelet in self.kubelets.items()}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Register the nodes and run them for ever; started once all are Ready and the pods are known.

        Raises NotSimulated when one of the names is that of a node that is not ours.
        """
        await self._for_all(self._register)
        reflector: Reflector[Pod] = Reflector(self._api, PODS, _Dispatch(self.kubelets), rng=self._rng)
        async with anyio.create_task_group() as group:
            for kubelet in self.kubelets.values():
                group.start_soon(kubelet.run, name=kubelet.shape.name)
            await group.start(reflector.run)
            if self._settings.lease_period_s:
                await self._for_all(self._renew)
                nodes: Reflector[Node] = Reflector(
                    self._api, NODES, self._given_up, label_selector=f"{node_object.SIMULATED}=true", rng=self._rng
                )
                group.start_soon(nodes.run)
                group.start_soon(self._heartbeats)
            task_status.started()

    async def _for_all(self, act: Callable[[Kubelet], Awaitable[None]]) -> None:
        """Await ``act`` for each node, as many at a time as there are writers."""

        async def one(kubelet: Kubelet) -> None:
            async with self._writers:
                await act(kubelet)

        async with anyio.create_task_group() as group:
            for kubelet in self.kubelets.values():
                group.start_soon(one, kubelet)

    async def remove(self) -> None:
        """Take the nodes off the API server, once ``run`` has ended. Kubernetes ends the pods that were there."""
        await self._for_all(self._unregister)

    def add(self, shape: NodeShape) -> Kubelet:
        """Add a machine that is registered later. Its ``run`` is the caller's task."""
        kubelet = self.kubelets[shape.name] = Kubelet(shape, self._around)
        return kubelet

    async def register(self, name: str) -> None:
        """Register a node that was added, or that somebody has deleted. Raises kube.client.errors.ApiError."""
        async with self._writers:
            await self._register(self.kubelets[name])

    async def refitted(self, name: str) -> None:
        """Register a machine that was replaced by another one under its name. Raises kube.client.errors.ApiError."""
        await self.register(name)
        annotations = node_object.node(self.kubelets[name].shape, now="")["metadata"].get("annotations", {})
        cards = {names.NODE_CARDS: annotations.get(names.NODE_CARDS)}
        await self._api.patch(NODES, name, {"metadata": {"annotations": cards}})

    async def tell(self, name: str) -> None:
        """Have a node say that it is well, and how many devices it offers now. Raises kube.client.errors.ApiError."""
        kubelet = self.kubelets[name]
        now = rfc3339(self._clock.now_ns())
        intake = kubelet.intake
        status = node_object.status(kubelet.shape, now=now, offered=intake.offered, also=intake.manager.listed)
        await self._api.patch(NODES, name, {"status": status}, subresource="status")

    async def _unregister(self, kubelet: Kubelet) -> None:
        uid = self._uids.pop(kubelet.shape.name, "")
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            if uid:
                await self._api.delete(NODES, kubelet.shape.name, uid=uid)

    async def _register(self, kubelet: Kubelet) -> None:
        """Create the node, or take over a simulated one of that name."""
        shape, now = kubelet.shape, rfc3339(self._clock.now_ns())
        plain = node_object.node(shape, now=now)
        try:
            stored = await self._api.create(NODES, plain)
        except errors.AlreadyExists:
            found = await self._api.get(NODES, shape.name)
            if node_object.SIMULATED not in (found.metadata.labels or {}):
                raise NotSimulated(shape.name) from None
            stored = await self._api.patch(NODES, shape.name, {"metadata": plain["metadata"]}, uid=found.metadata.uid)
        self._uids[shape.name] = stored.metadata.uid
        stored = await self._api.patch(NODES, shape.name, {"status": plain["status"]}, subresource="status")
        found_taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in stored.spec.taints or ()]
        # The node life-cycle controller takes the first away as well, where one runs.
        ours = (node_object.NOT_READY_TAINT, node_object.SIMULATED)
        taints = [taint for taint in found_taints if taint["key"] not in ours] + node_object.taints(shape)
        if taints != found_taints:
            await self._api.patch(NODES, shape.name, {"spec": {"taints": taints}})

    async def _heartbeats(self) -> None:
        """Renew each node's lease once a period, spread over it; a node that was given up meanwhile says how it is."""
        pause_s = self._settings.lease_period_s / max(1, len(self.kubelets))
        while self.kubelets:
            for kubelet in [*self.kubelets.values()]:
                await anyio.sleep(pause_s)
                if kubelet.is_answering and kubelet.shape.name in self._uids:
                    async with self._writers:
                        await self._renew(kubelet)
                    if kubelet.shape.name in self._given_up.names:
                        async with self._writers:
                            await self._report(kubelet)

    async def _renew(self, kubelet: Kubelet) -> None:
        """Renew a lease, making it if need be. A renewal that fails is left to the next one."""
        name = kubelet.shape.name
        plain = node_object.lease(name, owner_uid=self._uids[name], now_micro=rfc3339_micro(self._clock.now_ns()))
        with contextlib.suppress(errors.ApiError):
            try:
                await self._api.patch(LEASES, name, {"spec": plain["spec"]}, namespace=node_object.LEASE_NAMESPACE)
            except errors.NotFound:
                await self._api.create(LEASES, plain, namespace=node_object.LEASE_NAMESPACE)

    async def _report(self, kubelet: Kubelet) -> None:
        """Say that a node is well. A report that fails is left to the next heartbeat."""
        with contextlib.suppress(errors.ApiError):
            await self.tell(kubelet.shape.name)


@dataclass(slots=True)
class _GivenUp:
    """Follows nodes: ``names`` are those that the node life-cycle controller calls not ready."""

    names: set[str] = field(default_factory=set)

    def keep(self, obj: Node) -> tuple[str, bool]:
        """A node's name, and whether it is ready."""
        conditions = obj.status.conditions or ()
        return obj.metadata.name, any(c.type == "Ready" and c.status == "True" for c in conditions)

    async def replace(self, kept: Sequence[tuple[str, bool]]) -> None:
        """Take the whole truth."""
        self.names = {name for name, is_ready in kept if not is_ready}

    def upsert(self, obj: Node) -> None:
        """Take a node."""
        name, is_ready = self.keep(obj)
        if is_ready:
            self.names.discard(name)
        else:
            self.names.add(name)

    def delete(self, obj: Node) -> None:
        """Take a node that is gone."""
        self.names.discard(obj.metadata.name)


@dataclass(slots=True)
class _Dispatch:
    """Hands pods of the one stream to the nodes they are bound to."""

    kubelets: dict[str, Kubelet]
    _node_of: dict[str, str] = field(default_factory=dict)

    def keep(self, obj: Pod) -> Pod:
        """All of a pod: kubelets run it."""
        return obj

    async def replace(self, kept: Sequence[Pod]) -> None:
        """Take the whole truth; a node's pods that are not in it, or not on that node, are gone from there.

        A pod moves, or is bound to none any more, where etcd was restored from a snapshot.
        """
        there = {pod.metadata.uid: pod.spec.node_name for pod in kept}
        for uid in [uid for uid, node in self._node_of.items() if there.get(uid) != node]:
            self._gone(uid)
        for pod in kept:
            self.upsert(pod)
        for kubelet in self.kubelets.values():
            kubelet.reconcile()

    def upsert(self, obj: Pod) -> None:
        """Take a pod."""
        kubelet = self.kubelets.get(obj.spec.node_name)
        if kubelet is not None:
            self._node_of[obj.metadata.uid] = obj.spec.node_name
            kubelet.pod_changed(obj)

    def delete(self, obj: Pod) -> None:
        """Take a pod that is gone."""
        self._gone(obj.metadata.uid)

    def _gone(self, uid: str) -> None:
        name = self._node_of.pop(uid, None)
        if name is not None:
            self.kubelets[name].pod_gone(uid)


#: How soon it asks again, where there is no news of the reservation: kubelet may give it another device.
_AGAIN_S: Final = 1.0


@dataclass(slots=True)
class AgentFaults:
    """What is wrong with an agent; tests set it at any time.

    ``slow_s`` passes between kubelet's answer and the patch.
    """

    is_down: bool = False
    slow_s: float = 0.0


class NodeAgent:
    """The agent of one node."""

    def __init__(self, api: Api, kubelet: Kubelet) -> None:
        self.faults = AgentFaults()
        self._api = api
        self._kubelet = kubelet
        #: Reservations of the node (UID) as its watch shows them, and what is set when one is shown again.
        self._pods: dict[str, Pod] = {}
        self._news: dict[str, anyio.Event] = {}

    def see(self, pod: Pod, tasks: TaskGroup) -> None:
        """Take a reservation of the node."""
        uid = pod.metadata.uid
        self._pods[uid] = pod
        if uid in self._news:
            self._news[uid].set()
        elif not self._is_through(pod):
            self._news[uid] = anyio.Event()
            tasks.start_soon(self._follow, uid)

    def miss(self, uid: str) -> None:
        """Take that a reservation is gone."""
        self._pods.pop(uid, None)
        if uid in self._news:
            self._news[uid].set()

    async def _follow(self, uid: str) -> None:
        """Tell the device of one reservation until its process has had its say."""
        while (pod := self._pods.get(uid)) is not None and not self._is_through(pod):
            if self._is_up and (word := self._word(pod)) is not None:
                await anyio.sleep(self.faults.slow_s)
                if self._is_up:
                    with contextlib.suppress(errors.ApiError):
                        await self._write(pod, {"metadata": {"annotations": word}})
            with anyio.move_on_after(_AGAIN_S):
                await self._news[uid].wait()
            self._news[uid] = anyio.Event()
        del self._news[uid]

    @property
    def _is_up(self) -> bool:
        """Whether it lives and is connected: without its machine it is neither."""
        return not self.faults.is_down and self._kubelet.is_answering

    def _is_through(self, pod: Pod) -> bool:
        return reservation.read(pod).is_terminal or reservation.has_run(pod)

    def _word(self, pod: Pod) -> Annotations | None:
        """What is to be written, as kubelet answers now; None where there is nothing to tell."""
        if not pod.status.start_time or pod.metadata.deletion_timestamp is not None:
            return None  # to kubelet its name may still mean a predecessor
        given = [
            (device.resource, (device.uuid,))
            for device in self._kubelet.devices_of(pod.metadata.namespace, pod.metadata.name)
        ]
        before = held(pod)
        return judge(before, before, given or None, self._known()).write

    def _known(self) -> dict[str, Told]:
        """What the driver shows of the machine."""
        return {
            device.uuid: Told(device.uuid, None if device.is_slice else device.index, device.mem_mib)
            for device in self._kubelet.devices
        }

    async def _write(self, pod: Pod, patch: Mapping[str, object]) -> None:
        """Write at exactly the version that was read before the question."""
        meta = pod.metadata
        await self._api.patch(
            PODS, meta.name, patch, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )


class NodeAgents:
    """The agents of those ``machines`` (by name) that have one, on one watch of reservations. ``make`` makes one."""

    def __init__(
        self,
        transport: Transport,
        machines: Mapping[str, Kubelet],
        make: Callable[[Api, Kubelet], NodeAgent] = NodeAgent,
        *,
        seed: int,
    ) -> None:
        rng = random.Random(f"{seed}/agents")
        api = Api(transport, retry=Retry(rng))
        #: By name of the node.
        self.of = {name: make(api, machines[name]) for name in sorted(machines)}
        self._node_of: dict[str, str] = {}
        self._tasks: TaskGroup | None = None
        self._reflector: Reflector[Pod] = Reflector(
            api,
            PODS,
            self,
            namespace=names.RESERVATION_NAMESPACE,
            label_selector=f"{names.APP_LABEL}={names.RESERVATION_APP}",
            rng=rng,
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work for ever; started once the reservations are known. Where there are none, nothing is watched."""
        if not self.of:
            task_status.started()
            return
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await tasks.start(self._reflector.run)
            task_status.started()

    def keep(self, obj: Pod) -> Pod:
        """All of a reservation."""
        return obj

    async def replace(self, kept: Sequence[Pod]) -> None:
        """Take the whole truth."""
        there = {pod.metadata.uid for pod in kept}
        for uid in [uid for uid in self._node_of if uid not in there]:
            self._miss(uid)
        for pod in kept:
            self.upsert(pod)

    def upsert(self, obj: Pod) -> None:
        """Take a reservation."""
        agent = self.of.get(obj.spec.node_name)
        if agent is not None and self._tasks is not None:
            self._node_of[obj.metadata.uid] = obj.spec.node_name
            agent.see(obj, self._tasks)

    def delete(self, obj: Pod) -> None:
        """Take one that is gone."""
        self._miss(obj.metadata.uid)

    def _miss(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            self.of[node].miss(uid)
