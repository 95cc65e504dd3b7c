"""What a simulated node takes in: admission of pods, and the devices and resources that they hold until they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
import msgspec

from simulator.nodes import containers
from simulator.nodes.device_manager import Device, DeviceManager, Shortage
from simulator.nodes.ground_truth import Freed, GroundTruth, Held, Refused
from simulator.nodes.shape import NodeShape
from wire import names, quantity
from wire.core import Container, Pod

#: Resource -> its amount in the unit in which it is counted here.
Amounts = Mapping[str, int]

_MEMORY_LIKE: Final = (names.MEMORY_RESOURCE, names.EPHEMERAL_STORAGE_RESOURCE)


class Refusal(msgspec.Struct, frozen=True):
    """Why the pod is not admitted, as its status says it."""

    reason: str
    message: str


def allocatable(shape: NodeShape) -> dict[str, int]:
    """Return what the node has for pods: milli-CPU, MiB and numbers."""
    return {
        names.CPU_RESOURCE: shape.cpu_milli,
        names.MEMORY_RESOURCE: shape.mem_mib,
        names.EPHEMERAL_STORAGE_RESOURCE: shape.ephemeral_mib,
        names.PODS_RESOURCE: shape.pods,
    }


def judge(pod: Pod, active: Iterable[Pod], shape: NodeShape, labels: Mapping[str, str]) -> Refusal | None:
    """Judge a pod against the pods that are still active on the node (admitted, and not all containers ended).

    Kubelet trusts no scheduler: it counts again, in its own words (``OutOfcpu``...). GPUs are the device manager's.
    """
    if not is_selected(pod, labels):
        return Refusal("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match")
    others = [requests(other) for other in active]
    asked = requests(pod)
    for resource, capacity in allocatable(shape).items():
        used = sum(other.get(resource, 0) for other in others)
        if asked.get(resource, 0) and used + asked[resource] > capacity:
            detail = f"requested: {asked[resource]}, used: {used}, capacity: {capacity}"
            message = f"Pod was rejected: Node didn't have enough resource: {resource}, {detail}"
            return Refusal(f"OutOf{resource}", message)
    return None


def is_selected(pod: Pod, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is one that the pod's nodeSelector takes."""
    return all(labels.get(key) == value for key, value in (pod.spec.node_selector or {}).items())


def requests(pod: Pod) -> dict[str, int]:
    """Sum up what a pod asks, as kubelet does: init containers one by one, sidecars (KEP-753) with all after them."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for init in pod.spec.init_containers or ():
        if init.restart_policy == "Always":
            sidecars = _sum(sidecars, _requests(init))
            peak = _larger(peak, sidecars)
        else:
            peak = _larger(peak, _sum(sidecars, _requests(init)))
    together = sidecars
    for container in pod.spec.containers:
        together = _sum(together, _requests(container))
    if pod.spec.resources is not None and pod.spec.resources.requests:
        together = {**together, **_counted(pod.spec.resources.requests)}
    total = _sum(_larger(peak, together), _counted(pod.spec.overhead or {}))
    return {**total, names.PODS_RESOURCE: 1}


def _requests(container: Container) -> dict[str, int]:
    return _counted({**(container.resources.limits or {}), **(container.resources.requests or {})})


def _counted(amounts: Mapping[str, str | int | float]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for resource, amount in amounts.items():
        if resource == names.CPU_RESOURCE:
            counted[resource] = quantity.milli_up(amount)
        elif resource in _MEMORY_LIKE:
            counted[resource] = quantity.mib_up(amount)
    return counted


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    return {resource: one.get(resource, 0) + other.get(resource, 0) for resource in {**one, **other}}


def _larger(one: Amounts, other: Amounts) -> dict[str, int]:
    return {resource: max(one.get(resource, 0), other.get(resource, 0)) for resource in {**one, **other}}


#: Said while the device plugin is away, and when all devices of a kind are ill.
_NONE_HEALTHY: Final = "no healthy devices present; cannot allocate unhealthy devices"


@dataclass(slots=True)
class Intake:
    """Admits pods one by one, in the order in which they come.

    A pod holds what it was given until ``free``, through the machine's restarts as well: kubelet's device manager
    keeps a checkpoint file.
    """

    shape: NodeShape
    labels: Mapping[str, str]
    manager: DeviceManager
    ground_truth: GroundTruth
    #: How many of the next pods are refused (a fault).
    reject_next: int = 0
    #: Whether the device plugin is away: no device can be given out (a fault).
    plugin_is_down: bool = False
    #: Whether the device plugin refuses to hand out a device that kubelet has chosen.
    is_refused: Callable[[Device], bool] = lambda _: False
    #: For so long after a pod's end its devices can't be given out again (a fault).
    lag_s: float = 0.0
    _active: dict[str, Pod] = field(default_factory=dict)
    #: Pods that have ended, and when their devices are free.
    _lagging: dict[str, float] = field(default_factory=dict)

    @property
    def active(self) -> frozenset[str]:
        """UIDs of the pods that hold something."""
        return frozenset(self._active)

    def admit(self, pod: Pod) -> Refusal | None:
        """Take a pod, or say why not. One that was admitted before the machine restarted finds what it had."""
        uid = pod.metadata.uid
        if uid in self._active:
            return self._admit_again(pod)
        self.free_lagging()
        refusal = self._judge(pod)
        if refusal is None:
            self._active[uid] = pod
            self._tell_devices(uid)
            return None
        self.manager.free(uid)
        return self._refused(uid, refusal)

    @property
    def offered(self) -> dict[str, int]:
        """How many devices the node has for pods, as its status tells, by resource."""
        is_up = not self.plugin_is_down
        return {resource: self.manager.well(resource) if is_up else 0 for resource in self.manager.resources}

    def assigned(self, pod_uid: str, container: str) -> tuple[Device, ...]:
        """Return the devices that were given to a container."""
        return self.manager.held(pod_uid, container)

    def free(self, uid: str) -> None:
        """Take back what a pod held."""
        self._active.pop(uid, None)
        if not self.manager.held_by_pod(uid):
            return
        if self.lag_s:
            self._lagging.setdefault(uid, anyio.current_time() + self.lag_s)
        else:
            self._release(uid)

    def free_lagging(self) -> None:
        """Free the devices whose lag is over; of all pods that have ended once there is no lag any more."""
        now = anyio.current_time()
        for uid in [uid for uid, due in self._lagging.items() if due <= now or not self.lag_s]:
            self._release(uid)

    def _release(self, uid: str) -> None:
        self._lagging.pop(uid, None)
        self.manager.free(uid)
        self.ground_truth.record(Freed(at_s=anyio.current_time(), node=self.shape.name, pod_uid=uid))

    def forget(self, order: tuple[Device, ...]) -> None:
        """Lose the checkpoint: all pods are admitted again, and the devices come in another order."""
        for uid in self.active:
            self.free(uid)
        self.manager.order = order

    def refit(self, shape: NodeShape, labels: Mapping[str, str], order: tuple[Device, ...]) -> None:
        """Be another machine: nothing of what was given out is there any more."""
        self.forget(order)
        self.manager.ill.clear()
        self.shape, self.labels = shape, labels

    def lose_checkpoint_of(self, uid: str) -> None:
        """Forget which devices a pod has, while it goes on with them."""
        if self.manager.held_by_pod(uid):
            self._release(uid)

    def allocate_again(self, uid: str) -> bool:
        """Give a pod devices whose containers start again after ``lose_checkpoint_of``; False if there are too few."""
        pod = self._active.get(uid)
        if pod is None or self.manager.held_by_pod(uid):
            return True
        refusal = self._allocate(pod)
        if refusal is None:
            self._tell_devices(uid)
        else:
            self.manager.free(uid)
        return refusal is None

    def _admit_again(self, pod: Pod) -> Refusal | None:
        """Look again at a pod that the machine had before it was down.

        One that has devices is refused while those are not there, for good: the device plugin is a program like
        others, and kubelet does not wait for it.
        """
        uid = pod.metadata.uid
        held = self.manager.held_by_pod(uid)
        if not self.plugin_is_down or not held:
            return None
        self.free(uid)
        return self._refused(uid, _rejected(f"{_NONE_HEALTHY} {held[0].resource}"))

    def _refused(self, uid: str, refusal: Refusal) -> Refusal:
        at_s, node = anyio.current_time(), self.shape.name
        self.ground_truth.record(Refused(at_s=at_s, node=node, pod_uid=uid, reason=refusal.reason))
        return refusal

    def _judge(self, pod: Pod) -> Refusal | None:
        if self.reject_next > 0:
            self.reject_next -= 1
            return _rejected("a fault of the simulation")
        try:
            containers.work_of(pod)
        except containers.MalformedWork as error:
            return Refusal("MalformedWork", str(error))
        return self._allocate(pod) or judge(pod, self._active.values(), self.shape, self.labels)

    def _allocate(self, pod: Pod) -> Refusal | None:
        uid = pod.metadata.uid
        lent: list[Device] = []
        by_claim = _by_claim(pod)
        for kind, container in containers.containers_of(pod):
            is_lending = kind == containers.INIT and container.restart_policy != "Always"
            for resource, count in self._asked(container):
                if (container.name, resource) in by_claim:
                    continue
                if self.offered.get(resource) == 0:
                    return _rejected(f"{_NONE_HEALTHY} {resource}")
                given = self.manager.allocate(uid, container.name, count, resource=resource, lent=lent)
                if isinstance(given, Shortage):
                    return _shortage(given, resource)
                if refused := next((device for device in given if self.is_refused(device)), None):
                    return _rejected(f"rpc error: {refused.uuid} is withdrawn")
                # Only init containers that end lend their devices; each is lent to one container after them.
                lent = [device for device in lent if device not in given] + list(given if is_lending else ())
        return None

    def _asked(self, container: Container) -> Iterator[tuple[str, int]]:
        """What a container asks that a plugin serves here. Of what none does kubelet knows nothing, but for GPUs."""
        limits = container.resources.limits or {}
        for resource in sorted({names.GPU_RESOURCE, *self.manager.resources} & limits.keys()):
            if count := quantity.whole(limits[resource]):
                yield resource, count

    def _tell_devices(self, uid: str) -> None:
        if held := self.manager.held_by_pod(uid):
            devices = tuple(device.uuid for device in held)
            self.ground_truth.record(
                Held(at_s=anyio.current_time(), node=self.shape.name, pod_uid=uid, devices=devices)
            )


def _by_claim(pod: Pod) -> set[tuple[str, str]]:
    """Container and resource, where devices of a claim stand for an extended resource: no plugin is asked for them."""
    status = pod.status.extended_resource_claim_status
    mappings = (status.request_mappings if status is not None else None) or ()
    return {(each.container_name, each.resource_name) for each in mappings}


def _shortage(shortage: Shortage, resource: str) -> Refusal:
    numbers = f"Requested: {shortage.requested}, Available: {shortage.available}"
    return _rejected(f"requested number of devices unavailable for {resource}. {numbers}")


def _rejected(why: str) -> Refusal:
    """Refuse a pod in the words of kubelet's device manager."""
    message = f"Pod was rejected: Allocate failed due to {why}, which is unexpected"
    return Refusal(names.UNEXPECTED_ADMISSION_ERROR, message)
