"""One simulated machine with its kubelet, and the faults that a test gives it.

It decides as kubelet does and trusts no scheduler. The device report learns at once what it starts; the API server
learns it later, or never. It shares the pod stream and the writers with other nodes (simulator/nodes/node_set.py).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import NODES
from simulator.nodes import containers, node_object, pod_admission, pod_worker
from simulator.nodes.api_access import PodIdentity, Reporter
from simulator.nodes.device_manager import Checkpoints, Device, DeviceManager, make_devices, shuffled
from simulator.nodes.ground_truth import GroundTruth, Started, Stopped
from simulator.nodes.pod_admission import Intake, Refusal
from simulator.nodes.pod_worker import Life, PodWorker
from simulator.nodes.shape import NO_FAULT, KubeletSettings, NodeShape, ReservationFault
from wire import names
from wire.core import Container, Pod
from wire.rfc3339 import rfc3339

#: Exit code of a process that was killed.
_KILLED: Final = 137
_ENDED: Final = frozenset({names.SUCCEEDED, names.FAILED})


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What all nodes of a cluster share. ``identity`` carries a reservation process's own requests."""

    api: Api
    identity: PodIdentity
    clock: Clock
    ground_truth: GroundTruth
    settings: KubeletSettings
    writers: anyio.CapacityLimiter
    seed: int
    #: Where device managers outlive this process.
    checkpoints: Checkpoints | None = None


@dataclass(slots=True)
class Faults:
    """What is wrong with a node at the moment; tests set it at any time."""

    #: Added to the start of each pod.
    slow_start_s: float = 0.0
    reservation: ReservationFault = NO_FAULT


class Kubelet:
    """Plays one node: takes its pods from the stream, gives each a worker, and is the Machine that workers live on."""

    def __init__(self, shape: NodeShape, around: Surroundings) -> None:
        self.shape = shape
        self.faults = Faults()
        self.settings = around.settings
        self.rng = random.Random(f"{around.seed}/{shape.name}")
        self.devices = make_devices(shape, seed=around.seed)
        self.labels = node_object.labels(shape)
        self.intake = Intake(shape, self.labels, self._device_manager(around), around.ground_truth)
        self._around = around
        #: How often the machine was replaced by another one.
        self.refits = 0
        self._line = Reporter(around.api, around.writers, around.settings.write_retry_s)
        self._workers: dict[str, PodWorker] = {}
        #: Pods whose worker is through; the stream may still show them as they were before.
        self._through: set[str] = set()
        #: Those of them that the API server was told to delete: once is enough, though finalizers may keep them.
        self._removed: set[str] = set()
        #: Pods that went while their worker still ended them. One that is back by then is started again, as kubelet
        #: does (restartRequested of its pod workers): a Binding that a restore undid may come again.
        self._missed: set[str] = set()
        #: The newest version of each pod of this node: what a kubelet that was away finds when it comes back.
        self._known: dict[str, Pod] = {}
        #: (namespace, name) -> UID of the pod that it means.
        self._uid_of: dict[tuple[str, str], str] = {}
        #: Processes of containers that run, by pod UID and container.
        self._processes: dict[tuple[str, str], anyio.CancelScope] = {}
        self._power = anyio.Event()
        self._power.set()
        self._group: TaskGroup | None = None

    # --- what tests do to it -----------------------------------------------------------------------------------------

    def reject_next(self, count: int) -> None:
        """Refuse the next ``count`` pods with UnexpectedAdmissionError, reservation pods included."""
        self.intake.reject_next = count

    def die(self) -> None:
        """Lose power: every process on the machine is gone at once, without notice."""
        if self._power.is_set():
            # Who waits for the power must not wait for an event that was replaced.
            self._power = anyio.Event()
        if self._group is not None:
            self._group.cancel_scope.cancel()

    def boot(self, *, forget_devices: bool = False, plugin: bool = True) -> None:
        """Come back after ``die``. The device manager reads its checkpoint, unless that is lost with the disk.

        Without the ``plugin`` for devices kubelet is earlier than that, and refuses the pods that have some.
        """
        self.intake.plugin_is_down = not plugin
        if forget_devices:
            self.intake.forget(self._order())
        self._power.set()

    def history_set_back(self) -> None:
        """Notice that the API server may have pods as they were before: those that ended are run again if it has them.

        What runs is reported again, as kubelet does that finds another status than it wrote.
        """
        self._through.clear()
        self._removed.clear()
        for uid, worker in self._workers.items():
            worker.forget_written()
            if worker.is_vanished:
                self._missed.add(uid)
            if self._group is not None and not worker.is_refused:
                self._group.start_soon(worker.report)

    def refit(self, shape: NodeShape) -> None:
        """Be another machine under the same name, with ``shape``'s cards, between ``die`` and ``boot``."""
        self.refits += 1
        self.shape, self.labels = shape, node_object.labels(shape)
        self.devices = make_devices(shape, seed=self._around.seed, refits=self.refits)
        self.intake.refit(shape, self.labels, self._order())

    def restart_without_checkpoint(self) -> None:
        """Restart the kubelet's process alone, without the device manager's checkpoint: the containers go on.

        For containers that run nothing is allocated again, so their devices are taken for free, until they are started
        again (kubelet's device manager, isContainerAlreadyRunning). What is just being started is admitted again.
        """
        for uid, worker in self._workers.items():
            if all((uid, container.name) in self._processes for container in worker.pod.spec.containers):
                self.intake.lose_checkpoint_of(uid)

    def freeze(self) -> None:
        """Lose the connection: the containers go on, but nothing is heard from the API server or told to it."""
        self._line.cut()

    def thaw(self) -> None:
        """Have the connection back and catch up."""
        self._line.mend()
        self._catch_up()

    def evict(self, uid: str, message: str) -> bool:
        """End a pod because the machine is short of something: it fails. False if it isn't there, or not yet."""
        worker = self._workers.get(uid)
        if worker is not None:
            worker.evict(message)
        return worker is not None

    async def tell_health(self, uuid: str, *, is_ill: bool) -> None:
        """Have the device plugin say how a device is; the pods that hold it say so, too (KEP-4680)."""
        ill = self.intake.manager.ill
        (ill.add if is_ill else ill.discard)(uuid)
        for uid, worker in list(self._workers.items()):
            if any(device.uuid == uuid for device in self.intake.manager.held_by_pod(uid)):
                await worker.report()

    def kill_reservations(self) -> None:
        """Kill the reservation processes; their containers are started again."""
        for uid, worker in self._workers.items():
            if containers.is_reservation(worker.pod):
                self.kill(uid)

    def kill(self, uid: str) -> None:
        """Kill the processes of a pod; what becomes of its containers is up to its restart policy."""
        for (owner, _), scope in self._processes.items():
            if owner == uid:
                scope.cancel()

    @property
    def is_on(self) -> bool:
        """Whether the machine has power."""
        return self._power.is_set()

    @property
    def is_answering(self) -> bool:
        """Whether the node hears the API server and is heard."""
        return self._power.is_set() and self._line.is_connected

    @property
    def ending(self) -> Iterator[str]:
        """UIDs of the pods whose containers are being ended."""
        return (uid for uid, worker in self._workers.items() if worker.is_ending)

    # --- what it answers on its socket (pod-resources) ---------------------------------------------------------------

    def devices_of(self, namespace: str, name: str) -> tuple[Device, ...]:
        """Return the devices of the pod that a name means to this kubelet: the last one of it that it has heard of."""
        uid = self._uid_of.get((namespace, name), "")
        return self.intake.manager.held_by_pod(uid)

    # --- the pod stream ----------------------------------------------------------------------------------------------

    def pod_changed(self, pod: Pod) -> None:
        """Take a pod of this node as the stream shows it."""
        self._known[pod.metadata.uid] = pod
        if self.is_answering and self._group is not None:
            self._look_at(pod, self._group)

    def pod_gone(self, uid: str) -> None:
        """A pod of this node is not on the API server any more."""
        self._known.pop(uid, None)
        if self.is_answering:
            self._miss(uid)

    def reconcile(self) -> None:
        """Free what pods hold that ended or went while this process was away. All pods of the node are known."""
        live = {uid for uid, pod in self._known.items() if pod.status.phase not in _ENDED}
        if self.is_answering:
            for uid in sorted(self.intake.manager.pods - live - set(self._workers)):
                self.intake.free(uid)

    async def run(self) -> None:
        """Live for ever, through losses of power."""
        while True:
            await self._power.wait()
            async with anyio.create_task_group() as group:
                self._group = group
                self._catch_up()
                await anyio.sleep_forever()
            self._group = None
            self._workers.clear()
            self._missed.clear()

    def _catch_up(self) -> None:
        for uid in sorted((self.intake.active | self._through | set(self._workers)) - set(self._known)):
            self._miss(uid)
        for pod in list(self._known.values()):
            self.pod_changed(pod)

    def _miss(self, uid: str) -> None:
        self._uid_of = {key: owner for key, owner in self._uid_of.items() if owner != uid}
        self._through.discard(uid)
        self._removed.discard(uid)
        if worker := self._workers.get(uid):
            worker.vanish()
            self._missed.add(uid)
        # Kubelet counts with pods that it knows, not with those that still end: what a pod had that was deleted by
        # force may be given out before its containers have ended.
        self.intake.free(uid)

    def _look_at(self, pod: Pod, group: TaskGroup) -> None:
        uid = pod.metadata.uid
        self._uid_of[(pod.metadata.namespace, pod.metadata.name)] = uid
        if worker := self._workers.get(uid):
            worker.update(pod)
        elif uid not in self._through and pod.status.phase not in _ENDED:
            self._start(pod, group, self._run_pod)
        elif pod.metadata.deletion_timestamp and uid not in self._removed:
            self._start(pod, group, PodWorker.remove)

    def _start(self, pod: Pod, group: TaskGroup, life: Callable[[PodWorker], Awaitable[None]]) -> None:
        worker = self._workers[pod.metadata.uid] = PodWorker(self, pod)
        group.start_soon(self._employ, worker, life, name=f"{self.shape.name}/{pod.metadata.name}")

    async def _employ(self, worker: PodWorker, life: Callable[[PodWorker], Awaitable[None]]) -> None:
        uid = worker.pod.metadata.uid
        await life(worker)
        del self._workers[uid]
        was_missed = uid in self._missed
        self._missed.discard(uid)
        pod = self._known.get(uid)
        if pod is None:
            return
        if not was_missed:
            self._through.add(uid)
            if worker.is_removed:
                self._removed.add(uid)
        self.pod_changed(pod)

    async def _run_pod(self, worker: PodWorker) -> None:
        if not pod_admission.is_selected(worker.pod, self.labels):
            await self._read_labels()
        refusal = self.intake.admit(worker.pod)
        if refusal is not None:
            worker.is_refused = True
            lives = worker.lives.values()
            await self.write_status(worker.pod, lambda pod: self._refused(pod, lives, refusal))
            return
        await anyio.sleep(self.faults.slow_start_s)
        await worker.run()

    async def _read_labels(self) -> None:
        """Take the labels of the Node object, which anybody may have changed since it was registered."""
        with contextlib.suppress(errors.ApiError):
            node = await self._around.api.get(NODES, self.shape.name)
            self.labels = self.intake.labels = node.metadata.labels or {}

    def _refused(self, pod: Pod, lives: Iterable[Life], refusal: Refusal) -> dict[str, Any]:
        return pod_worker.refused(pod, lives, refusal.reason, refusal.message, now=self.now())

    def _device_manager(self, around: Surroundings) -> DeviceManager:
        kept, name = around.checkpoints, self.shape.name
        if kept is None:
            return DeviceManager(self._order())
        manager = DeviceManager(self._order(), lambda held: kept.save(name, held))
        manager.restore(kept.load(name, self.devices))
        return manager

    def _order(self) -> tuple[Device, ...]:
        return shuffled(self.devices, self.rng) if self.settings.shuffle_devices else self.devices

    # --- simulator.nodes.pod_worker.Machine
    # ---------------------------------------------------------------------------------

    def assigned(self, pod_uid: str, container: str) -> tuple[Device, ...]:
        """Return the devices that the device manager gave to a container."""
        return self.intake.assigned(pod_uid, container)

    def has_devices(self, pod_uid: str) -> bool:
        """Whether a pod has the devices that it asks; those of which the checkpoint was lost are given out again."""
        return self.intake.allocate_again(pod_uid)

    def health(self, pod_uid: str, container: str) -> dict[Device, bool]:
        """Return those devices, and whether they are well."""
        return {d: d.uuid not in self.intake.manager.ill for d in self.assigned(pod_uid, container)}

    def has_image(self, pod: Pod) -> bool:
        """Whether the image of a pod is there: only that of reservations may be missing, by a fault."""
        return not (self.faults.reservation.no_image and containers.is_reservation(pod))

    def image_env(self) -> dict[str, str]:
        """Return what images set."""
        value = self.settings.image_visible_devices
        return {names.ENV_VISIBLE_DEVICES: value} if value else {}

    async def sources(self, pod: Pod, container: Container) -> containers.Sources:
        """Read the ConfigMaps and Secrets that a container's environment is made from."""
        return await self._line.sources(pod, container)

    async def run_process(
        self,
        pod: Pod,
        life: Life,
        env: dict[str, str],
        devices: tuple[Device, ...],
        *,
        report: Callable[[], Awaitable[None]],
    ) -> int:
        """Run a container's process to its end, its own or a violent one. ``report``: tells that it runs."""
        key = (pod.metadata.uid, life.name)
        with anyio.CancelScope() as scope:
            self._processes[key] = scope
            try:
                await report()
                return await self._process(pod, life, env, devices)
            finally:
                del self._processes[key]
        return _KILLED

    async def _process(self, pod: Pod, life: Life, env: dict[str, str], devices: tuple[Device, ...]) -> int:
        if containers.is_reservation(pod):
            transport = await self._around.identity(pod)
            return await containers.reserve(env, devices, transport=transport, fault=lambda: self.faults.reservation)
        if life.is_init:
            return await containers.work(None if life.is_sidecar else self.settings.init_run_s, 0)
        return await containers.work(*containers.work_of(pod))

    def container_started(self, pod: Pod, life: Life, seen: tuple[Device, ...]) -> None:
        """Take down that a container's process began."""
        uid = pod.metadata.uid
        self._around.ground_truth.record(
            Started(
                at_s=anyio.current_time(),
                node=self.shape.name,
                pod_uid=uid,
                pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
                container=life.name,
                is_init=life.is_init,
                restarts=life.restarts,
                devices=tuple(device.uuid for device in seen),
                assigned=tuple(device.uuid for device in self.assigned(uid, life.name)),
            )
        )

    def container_stopped(self, pod: Pod, life: Life) -> None:
        """Take down that a container's process is gone."""
        now_s, uid = anyio.current_time(), pod.metadata.uid
        self._around.ground_truth.record(Stopped(at_s=now_s, node=self.shape.name, pod_uid=uid, container=life.name))

    def pod_ended(self, pod: Pod) -> None:
        """All containers have ended: the pod's devices and resources are free again."""
        self.intake.free(pod.metadata.uid)

    async def write_status(self, pod: Pod, make: Callable[[Pod], dict[str, Any]]) -> Pod | None:
        """Write the pod's status; return the pod as stored, or None when it is gone."""
        return await self._line.write_status(pod, make)

    async def remove(self, pod: Pod) -> None:
        """Delete a pod that has ended and is to go."""
        await self._line.remove(pod)

    def now(self) -> str:
        """Return the wall time as metav1.Time."""
        return rfc3339(self._around.clock.now_ns())
