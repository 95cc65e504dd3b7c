"""What came out of a simulation, as values to be printed or written as JSON.

Devices are what the containers really saw (simulator/nodes/ground_truth.py); the API server's word counts for phases,
nodes and reasons only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu import grant as grants
from gpu.share import NANO_PER_DEVICE, memory_from_nano
from simulator.checks.violations import SOUND
from simulator.nodes.device_manager import Device
from wire import names

if TYPE_CHECKING:
    from simulator.world import World


class DeviceShare(msgspec.Struct, frozen=True):
    """A part of a device: ``nano_gpu`` of 1,000,000,000, and the memory in MiB that it stands for."""

    index: int
    uuid: str
    nano_gpu: int
    mem_mib: int


#: The reason of a pod that is left to another scheduler.
OTHER_SCHEDULER: Final = "OtherScheduler"


#: The phase and the reason of a pod that was evicted, and is gone.
EVICTED: Final = "Evicted"
#: The reason of a pod that was deleted as its Job failed.
JOB_FAILED: Final = "JobFailed"


class PodOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One pod. ``reason`` and ``verdict`` say why it waits or failed; ``to_bind_s`` is None until it is bound."""

    namespace: str
    name: str
    phase: str
    node: str
    devices: tuple[DeviceShare, ...]
    reason: str
    verdict: str
    to_bind_s: float | None


class Tenant(msgspec.Struct, frozen=True):
    """A pod on a device at the end."""

    pod: str
    nano_gpu: int


class DeviceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One device. ``reserved``: a reservation pod holds it."""

    index: int
    uuid: str
    mem_mib: int
    reserved: bool
    tenants: tuple[Tenant, ...]


class NodeOutcome(msgspec.Struct, frozen=True):
    """One node."""

    name: str
    devices: tuple[DeviceOutcome, ...]


class Amounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """CPU, memory and GPUs of a queue; a field is absent where there is no limit."""

    cpu_milli: int | None = None
    mem_bytes: int | None = None
    nano_gpu: int | None = None


class QueueOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with all below it. ``closed``: why its pods can't start, "" if they can.

    ``placed``, ``waiting``: pods; ``used``, ``waits_for``: what they use and request. A request for GPU memory counts
    as its part of the smallest GPU.
    """

    name: str
    parent: str
    closed: str
    placed: int
    waiting: int
    used: Amounts
    waits_for: Amounts
    quota: Amounts
    limit: Amounts


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. ``invariants``: id -> "held" (or why nobody looked), or the violation.

    ``idle``: whether everything was done when it ended, ``ended_at_s`` after the start.
    """

    pods: tuple[PodOutcome, ...]
    nodes: tuple[NodeOutcome, ...]
    invariants: Mapping[str, str]
    queues: tuple[QueueOutcome, ...] = ()
    idle: bool
    ended_at_s: float

    @property
    def all_held(self) -> bool:
        """Whether every invariant held."""
        return all(outcome in SOUND for outcome in self.invariants.values())


def pods(world: World) -> tuple[PodOutcome, ...]:
    """Return the pods of users, in the order of their making, and after them those that are gone.

    These were evicted, or belonged to a Job that failed as others of its pods were evicted.
    """
    cards = _cards(world)
    there = (_pod(raw, world, cards) for raw in _users(world))
    ended = (_ended(raw, world) for raw in world.successors.ended.values())
    return (*there, *(_evicted(raw, world) for raw in world.evicted.pods.values()), *ended)


def nodes(world: World) -> tuple[NodeOutcome, ...]:
    """Return who sits where now, by what runs on the machines."""
    tenants = _tenants(world)
    reserved = {
        uuid
        for container in world.nodes.ground_truth.running
        if container.pod.startswith(f"{names.RESERVATION_NAMESPACE}/")
        for uuid in container.devices
    }
    return tuple(
        NodeOutcome(
            name,
            tuple(
                DeviceOutcome(
                    index=device.index,
                    uuid=device.uuid,
                    mem_mib=device.mem_mib,
                    reserved=device.uuid in reserved,
                    tenants=tuple(Tenant(pod, nano) for pod, nano in sorted(tenants[device.uuid].items())),
                )
                for device in devices
            ),
        )
        for name, devices in world.nodes.devices.items()
    )


def queues(world: World, *, unless_used: Collection[str] = ()) -> tuple[QueueOutcome, ...]:
    """Return what each queue uses and waits for now, by the checker's count; nothing where there is no Queue.

    ``unless_used``: queues that are left out while they have no pods.
    """
    return tuple(
        QueueOutcome(
            name=load.name,
            parent=load.parent,
            closed=load.closed,
            placed=load.placed,
            waiting=load.waiting,
            used=_amounts(load.used),
            waits_for=_amounts(load.waits_for),
            quota=_amounts(load.most["quota"]),
            limit=_amounts(load.most["limit"]),
        )
        for load in world.checker.limits.loads()
        if load.name not in unless_used or load.placed or load.waiting
    )


def _amounts(each: Mapping[str, Fraction | None]) -> Amounts:
    units = {"cpu": 1, "memory": 1, "gpu": NANO_PER_DEVICE}
    cpu, memory, gpu = (None if (found := each[name]) is None else int(found * one) for name, one in units.items())
    return Amounts(cpu, memory, gpu)


def _cards(world: World) -> dict[str, Device]:
    return {device.uuid: device for devices in world.nodes.devices.values() for device in devices}


def _tenants(world: World) -> Mapping[str, dict[str, int]]:
    """Device -> pod -> its share, of pods that live on a node.

    A pod keeps the devices of a container that has ended, an init container's for instance, until it ends itself.
    """
    tenants: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for raw in _users(world):
        metadata, shares = raw["metadata"], _shares(raw)
        if (raw.get("status") or {}).get("phase") in {names.SUCCEEDED, names.FAILED}:
            continue
        for uuid in _seen(world, metadata["uid"]):
            tenants[uuid][f"{metadata['namespace']}/{metadata['name']}"] = shares.get(uuid, NANO_PER_DEVICE)
    return tenants


def _users(world: World) -> list[dict[str, Any]]:
    """Pods of users: all but reservation pods."""
    return [raw for raw in world.pods if raw["metadata"]["namespace"] != names.RESERVATION_NAMESPACE]


def _seen(world: World, pod_uid: str) -> set[str]:
    """Devices that the newest runs of a pod's containers saw."""
    return {uuid for seen in world.nodes.ground_truth.seen_by(pod_uid).values() for uuid in seen}


def _pod(raw: Mapping[str, Any], world: World, cards: Mapping[str, Device]) -> PodOutcome:
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    shares = _shares(raw)
    devices = sorted((cards[uuid] for uuid in _seen(world, metadata["uid"])), key=lambda device: device.index)
    reason, verdict = reason_of(raw)
    return PodOutcome(
        namespace=metadata["namespace"],
        name=metadata["name"],
        phase=status.get("phase", ""),
        node=spec.get("nodeName", ""),
        devices=tuple(_share(device, shares.get(device.uuid, NANO_PER_DEVICE)) for device in devices),
        reason=reason,
        verdict=verdict,
        to_bind_s=world.timeline.of[metadata["uid"]].to_bind_s,
    )


def _evicted(raw: Mapping[str, Any], world: World) -> PodOutcome:
    why = world.evicted.text(raw) or "no Event says why"
    failed = _why_failed(raw, world)
    return _gone(raw, world, phase=EVICTED, reason=EVICTED, verdict=f"{why}; {failed}" if failed else why)


def _ended(raw: Mapping[str, Any], world: World) -> PodOutcome:
    return _gone(raw, world, phase=names.FAILED, reason=JOB_FAILED, verdict=_why_failed(raw, world))


def _why_failed(raw: Mapping[str, Any], world: World) -> str:
    """Return why the Job of a pod has failed, "" where it has not."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((why for each in owners if (why := world.successors.failed.get(each["uid"]))), "")


def _gone(raw: Mapping[str, Any], world: World, *, phase: str, reason: str, verdict: str) -> PodOutcome:
    metadata = raw["metadata"]
    return PodOutcome(
        namespace=metadata["namespace"],
        name=metadata["name"],
        phase=phase,
        node=raw["spec"].get("nodeName", ""),
        devices=(),
        reason=reason,
        verdict=verdict,
        to_bind_s=world.timeline.of[metadata["uid"]].to_bind_s,
    )


def _share(device: Device, nano: int) -> DeviceShare:
    return DeviceShare(device.index, device.uuid, nano, memory_from_nano(nano, device.mem_mib))


def _shares(raw: Mapping[str, Any]) -> dict[str, int]:
    """Device -> nano-GPU, as the pod's Binding granted it."""
    grant = grants.read(raw["metadata"].get("annotations"))
    return {device.uuid: device.nano for device in grant.devices} if grant else {}


def reason_of(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return why a pod waits or failed: reason and text; empty for one that runs or ended well."""
    spec, status = raw["spec"], raw.get("status") or {}
    if status.get("phase") == names.FAILED:
        return status.get("reason") or "Failed", status.get("message") or "a container failed"
    if status.get("phase") != names.PENDING:
        return "", ""
    if spec.get("nodeName"):
        return _container_reason(status)
    if spec.get("schedulerName") != names.SCHEDULER_NAME:
        only = f"only {names.SCHEDULER_NAME} runs in a simulation"
        return OTHER_SCHEDULER, f"spec.schedulerName is {spec.get('schedulerName')!r}, and {only}"
    for condition in status.get("conditions") or ():
        if condition["type"] == names.CONDITION_POD_SCHEDULED and condition["status"] == "False":
            return condition.get("reason", ""), condition.get("message", "")
    return "", "not looked at yet"


def _container_reason(status: Mapping[str, Any]) -> tuple[str, str]:
    """Return what keeps a bound pod's container from running."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return waiting.get("reason", ""), waiting.get("message", "")
    return "ContainerCreating", "its containers are being started"
