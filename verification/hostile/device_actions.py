"""What administrators, users and drivers do with devices: MIG layouts, ResourceClaims, volumes, extended resources.

Layouts are asked for past the scheduler and withdrawn, claims of extended resources are deleted and forged, volumes
wait for their first consumer.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from typing_extensions import override

from kube.client.api import Api
from kube.client.resources import (
    DEVICE_CLASSES,
    GPU_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
)
from kube.client.retry import Retry
from simulator.controllers.kube_controllers import DRIVER_USER, POD_CLAIM_NAME, DeviceReadiness
from verification.hostile.acting import Act
from wire import names

if TYPE_CHECKING:
    from simulator.world import World

Json = dict[str, Any]

_NAMESPACE: Final = "team"
DRIVER: Final = "gpu.example.com"
#: Takes any device; takes those with the attribute ``big``.
ANY_CLASS: Final = "any"
BIG_CLASS: Final = "big"
#: What parts of a shared device are counted in.
MEMORY: Final = "memory"
_TAINT: Final = {"key": "example.com/worn", "value": "", "effect": "NoSchedule"}
#: What devices of a pool take together, where they take any of it: as slices of one GPU do.
COUNTED: Final = 7
_SET, _COUNTER = "gpu", "slices"
#: What pods call the claim of their group: the first one that comes from a template, if they name none.
GROUP_CLAIM: Final = "c0"
#: Conditions of devices that have to get ready.
READY, FAILED = "example.com/ready", "example.com/failed"
#: Volumes are made for this class where they are needed; those of the other one an administrator makes.
FAST_CLASS: Final = "fast"
SLOW_CLASS: Final = "slow"


class Offered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A device. ``shared_gib``: several claims may have parts of this memory; 0: one claim has all of the device.

    ``draws``: what it takes of its pool's counter, of which there are COUNTED. ``has_to_get_ready``: pods are bound
    with it when its driver has reported that it is. ``uuid``: as its driver publishes it, "" for none.
    """

    name: str
    is_big: bool = False
    is_tainted: bool = False
    shared_gib: int = 0
    draws: int = 0
    has_to_get_ready: bool = False
    uuid: str = ""

    @property
    def manifest(self) -> Json:
        """The device as a driver publishes it."""
        made: Json = {"name": self.name, "attributes": {"big": {"bool": self.is_big}}}
        if self.uuid:
            made["attributes"]["uuid"] = {"string": self.uuid}
        if self.is_tainted:
            made["taints"] = [_TAINT]
        if self.shared_gib:
            made |= {"allowMultipleAllocations": True, "capacity": {MEMORY: {"value": f"{self.shared_gib}Gi"}}}
        if self.draws:
            made["consumesCounters"] = [{"counterSet": _SET, "counters": {_COUNTER: {"value": str(self.draws)}}}]
        if self.has_to_get_ready:
            made |= {"bindingConditions": [READY], "bindingFailureConditions": [FAILED]}
        return made


def tainted(device: Offered, is_tainted: bool) -> Offered:
    """The same device with or without a taint."""
    return msgspec.structs.replace(device, is_tainted=is_tainted)


def slices(node: str, devices: tuple[Offered, ...], *, generation: int, count: int) -> list[Json]:
    """The ResourceSlices of a node's pool: one of counters, if devices draw on them, and devices in ``count`` parts."""
    is_counted = any(each.draws for each in devices)
    pool = {"name": node, "generation": generation, "resourceSliceCount": count + is_counted}
    counters = {"name": _SET, "counters": {_COUNTER: {"value": str(COUNTED)}}}
    spec: Json = {"driver": DRIVER, "nodeName": node, "pool": pool, "sharedCounters": [counters]}
    first = [{"metadata": {"name": f"{node}-{generation}-counters"}, "spec": spec}] if is_counted else []
    return first + [
        {
            "metadata": {"name": f"{node}-{generation}-{number}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": pool,
                "devices": [each.manifest for each in devices[number::count]],
            },
        }
        for number in range(count)
    ]


async def remove_slices(api: Api, node: str, *, below: int | None = None) -> None:
    """Delete a node's slices, or those of generations ``below`` this one. Raises kube.client.errors.ApiError."""
    for each in (await api.list(RESOURCE_SLICES)).items:
        if each.spec.pool.name == node and (below is None or each.spec.pool.generation < below):
            await api.delete(RESOURCE_SLICES, each.metadata.name)


class Want(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request of a claim: ``count`` devices of a class (0: all of a node), or else of another class.

    ``part_gib``: a part of each shared device. ``tolerates``: tainted devices, too.
    """

    count: int = 1
    cls: str = ANY_CLASS
    otherwise: str = ""
    part_gib: int = 0
    tolerates: bool = False

    def manifest(self, name: str) -> Json:
        """The request as a claim has it."""
        if not self.otherwise:
            return {"name": name, "exactly": self._asked(self.cls)}
        ways = (("first", self.cls), ("second", self.otherwise))
        return {"name": name, "firstAvailable": [{"name": way, **self._asked(cls)} for way, cls in ways]}

    def _asked(self, cls: str) -> Json:
        made: Json = {"deviceClassName": cls, "allocationMode": "ExactCount", "count": self.count}
        if not self.count:
            made = {"deviceClassName": cls, "allocationMode": "All"}
        if self.part_gib:
            made["capacity"] = {"requests": {MEMORY: f"{self.part_gib}Gi"}}
        if self.tolerates:
            made["tolerations"] = [{"key": _TAINT["key"], "operator": "Exists"}]
        return made


def asked(wants: tuple[Want, ...]) -> Json:
    """The spec of a claim."""
    return {"devices": {"requests": [want.manifest(f"r{number}") for number, want in enumerate(wants)]}}


class CreateDeviceClasses(Act, frozen=True, kw_only=True, tag="create-device-classes"):
    """Create the classes for any device and for big ones."""

    @override
    async def _do(self, world: World) -> None:
        await world.api.create(DEVICE_CLASSES, {"metadata": {"name": ANY_CLASS}, "spec": {}})
        selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].big'}}]
        await world.api.create(DEVICE_CLASSES, {"metadata": {"name": BIG_CLASS}, "spec": {"selectors": selectors}})


class PublishDevices(Act, frozen=True, kw_only=True, tag="publish-devices"):
    """The driver of a node publishes its devices, then removes the slices of generations before."""

    node: str
    devices: tuple[Offered, ...]
    generation: int = 1
    slices: int = 1

    @override
    async def _do(self, world: World) -> None:
        for body in slices(self.node, self.devices, generation=self.generation, count=self.slices):
            await world.api.create(RESOURCE_SLICES, body)
        await remove_slices(world.api, self.node, below=self.generation)


class WithdrawDevices(Act, frozen=True, kw_only=True, tag="withdraw-devices"):
    """The driver of a node is removed, and its devices with it."""

    node: str

    @override
    async def _do(self, world: World) -> None:
        await remove_slices(world.api, self.node)


class RunDriver(Act, frozen=True, kw_only=True, tag="run-driver"):
    """Run what gets devices ready (DeviceReadiness). Until ``until_s`` some fail, some are silent."""

    until_s: float
    takes_s: float
    fails_per_mille: int = 0
    silent_per_mille: int = 0
    seed: int = 0

    @override
    async def _do(self, world: World) -> None:
        rng = random.Random(f"{self.seed}/driver")
        driver = DeviceReadiness(
            Api(world.server.transport(DRIVER_USER), retry=Retry(rng)),
            rng,
            takes_s=self.takes_s,
            fails_per_mille=self.fails_per_mille,
            silent_per_mille=self.silent_per_mille,
            until_s=anyio.current_time() + self.until_s - self.at_s,
        )
        world.start_soon(driver.run)


class CreateClaimTemplate(Act, frozen=True, kw_only=True, tag="create-claim-template"):
    """Create a template of which each pod that names it gets a claim."""

    name: str
    wants: tuple[Want, ...]

    @override
    async def _do(self, world: World) -> None:
        body = {"metadata": {"name": self.name}, "spec": {"spec": asked(self.wants)}}
        await world.api.create(RESOURCE_CLAIM_TEMPLATES, body, namespace=_NAMESPACE)


class CreateResourceClaim(Act, frozen=True, kw_only=True, tag="create-resource-claim"):
    """Create a claim that any pod may name.

    ``pod_group``: it is made for this PodGroup of Kubernetes' Workload API, as kube-controller-manager makes one from a
    template. So it is that of all pods of the group, which call it GROUP_CLAIM.
    """

    name: str
    wants: tuple[Want, ...]
    pod_group: str = ""

    @override
    async def _do(self, world: World) -> None:
        body = {"metadata": {"name": self.name, **self._owned()}, "spec": asked(self.wants)}
        await world.api.create(RESOURCE_CLAIMS, body, namespace=_NAMESPACE)

    def _owned(self) -> Json:
        if not self.pod_group:
            return {}
        group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": self.pod_group}
        owner = {**group, "uid": f"uid-{self.pod_group}", "controller": True}
        return {"annotations": {POD_CLAIM_NAME: GROUP_CLAIM}, "ownerReferences": [owner]}


class DeleteResourceClaim(Act, frozen=True, kw_only=True, tag="delete-resource-claim"):
    """Delete a claim; it stays until nobody uses it."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(RESOURCE_CLAIMS, self.name, namespace=_NAMESPACE)


class CreateStorageClasses(Act, frozen=True, kw_only=True, tag="create-storage-classes"):
    """Create a class that provisions and one that does not; both wait for the first consumer.

    Each node is a zone of its own, so that a volume that is made for it is used there only.
    """

    @override
    async def _do(self, world: World) -> None:
        for node in world.nodes.kubelets:
            await world.api.patch(NODES, node, {"metadata": {"labels": {names.ZONE_LABEL: node}}})
        for name, provisioner in ((FAST_CLASS, "disk.csi.example"), (SLOW_CLASS, names.NO_PROVISIONER)):
            waits = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            await world.api.create(STORAGE_CLASSES, {"metadata": {"name": name}, **waits})


class CreateVolume(Act, frozen=True, kw_only=True, tag="create-volume"):
    """An administrator makes a volume that one node reaches."""

    name: str
    node: str
    gib: int = 1

    @override
    async def _do(self, world: World) -> None:
        term = {"matchExpressions": [{"key": names.ZONE_LABEL, "operator": "In", "values": [self.node]}]}
        spec = {
            "capacity": {"storage": f"{self.gib}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": SLOW_CLASS,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        await world.api.create(PERSISTENT_VOLUMES, {"metadata": {"name": self.name}, "spec": spec})
        status = {"status": {"phase": "Available"}}
        await world.api.patch(PERSISTENT_VOLUMES, self.name, status, subresource="status")


class CreateVolumeClaim(Act, frozen=True, kw_only=True, tag="create-volume-claim"):
    """Create a claim of a volume. ``is_shared``: pods of several nodes may use it."""

    name: str
    cls: str = FAST_CLASS
    gib: int = 1
    is_shared: bool = False

    @override
    async def _do(self, world: World) -> None:
        spec = {
            "accessModes": ["ReadWriteMany" if self.is_shared else "ReadWriteOnce"],
            "storageClassName": self.cls,
            "resources": {"requests": {"storage": f"{self.gib}Gi"}},
        }
        body = {"metadata": {"name": self.name}, "spec": spec}
        await world.api.create(PERSISTENT_VOLUME_CLAIMS, body, namespace=_NAMESPACE)


class DeleteVolumeClaim(Act, frozen=True, kw_only=True, tag="delete-volume-claim"):
    """Delete the claim of a volume."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(PERSISTENT_VOLUME_CLAIMS, self.name, namespace=_NAMESPACE)


#: Everything that is done with claims.
ClaimAction = (
    CreateDeviceClasses
    | PublishDevices
    | WithdrawDevices
    | RunDriver
    | CreateClaimTemplate
    | CreateResourceClaim
    | DeleteResourceClaim
    | CreateStorageClasses
    | CreateVolume
    | CreateVolumeClaim
    | DeleteVolumeClaim
)


if TYPE_CHECKING:
    from simulator.world import World


class CreateExtendedClass(Act, frozen=True, kw_only=True, tag="create-extended-class"):
    """Create a class that stands for an extended resource: of devices that are ``is_big``, or of all others."""

    name: str
    resource: str
    is_big: bool = False

    @override
    async def _do(self, world: World) -> None:
        expression = f'{"" if self.is_big else "!"}device.attributes["{DRIVER}"].big'
        spec = {"extendedResourceName": self.resource, "selectors": [{"cel": {"expression": expression}}]}
        await world.api.create(DEVICE_CLASSES, {"metadata": {"name": self.name}, "spec": spec})


class DeleteClass(Act, frozen=True, kw_only=True, tag="delete-class"):
    """Delete a DeviceClass."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(DEVICE_CLASSES, self.name)


class DeleteClaimsOf(Act, frozen=True, kw_only=True, tag="delete-claims-of"):
    """Somebody deletes the claims that were made for a pod."""

    pod: str

    @override
    async def _do(self, world: World) -> None:
        for claim in (await world.api.list(RESOURCE_CLAIMS, namespace=_NAMESPACE)).items:
            if any(each.kind == "Pod" and each.name == self.pod for each in claim.metadata.owner_references or ()):
                await world.api.delete(RESOURCE_CLAIMS, claim.metadata.name, namespace=_NAMESPACE)


class ForgeClaim(Act, frozen=True, kw_only=True, tag="forge-claim"):
    """Create a claim that looks as if the scheduler had made it for a pod."""

    name: str
    pod: str
    cls: str

    @override
    async def _do(self, world: World) -> None:
        pod = await world.api.get(PODS, self.pod, namespace=_NAMESPACE)
        owner: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "name": self.pod, "uid": pod.metadata.uid}
        annotations = {names.EXTENDED_RESOURCE_CLAIM: "true"}
        meta = {"name": self.name, "annotations": annotations, "ownerReferences": [{**owner, "controller": True}]}
        exactly = {"deviceClassName": self.cls, "allocationMode": "ExactCount", "count": 1}
        spec = {"devices": {"requests": [{"name": "container-0-request-0", "exactly": exactly}]}}
        await world.api.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": spec}, namespace=_NAMESPACE)


#: Everything that is done with claims for extended resources.
ExtendedAction = CreateExtendedClass | DeleteClass | DeleteClaimsOf | ForgeClaim


if TYPE_CHECKING:
    from simulator.world import World


class AskLayout(Act, frozen=True, kw_only=True, tag="ask-layout"):
    """Ask a node for a layout of its GPU number ``card``, each slice as ``1g.10gb@3``, past the scheduler."""

    node: str
    attempt: str
    slices: tuple[str, ...]
    card: int = 0

    @override
    async def _do(self, world: World) -> None:
        found = await world.api.get(GPU_NODES, self.node)
        cards = [each.uuid for each in found.status.cards or ()]
        if not cards:
            return
        uuid = cards[self.card % len(cards)]
        places = [each.split("@") for each in self.slices]
        layout = [{"profile": profile, "start": int(start)} for profile, start in places]
        kept: list[dict[str, Any]] = [
            {
                "uuid": each.uuid,
                "attempt": each.attempt,
                "layout": [{"profile": place.profile, "start": place.start} for place in each.layout],
            }
            for each in found.spec.mig or ()
            if each.uuid != uuid
        ]
        body = {"spec": {"mig": [*kept, {"uuid": uuid, "attempt": self.attempt, "layout": layout}]}}
        await world.api.patch(GPU_NODES, self.node, body, resource_version=found.metadata.resource_version)


class WithdrawLayouts(Act, frozen=True, kw_only=True, tag="withdraw-layouts"):
    """Take back all that is asked of a node."""

    node: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.patch(GPU_NODES, self.node, {"spec": {"mig": None}})


class OfferGpus(Act, frozen=True, kw_only=True, tag="offer-gpus"):
    """Offer the GPUs of a node to be cut, or do so no longer."""

    node: str
    is_offered: bool = True

    @override
    async def _do(self, world: World) -> None:
        value = names.MIG_DYNAMIC if self.is_offered else None
        await world.api.patch(NODES, self.node, {"metadata": {"labels": {names.NODE_MIG: value}}})


#: Everything that is done with slices.
MigAction = AskLayout | WithdrawLayouts | OfferGpus
