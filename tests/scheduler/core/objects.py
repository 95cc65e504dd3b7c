"""API objects for the tests of the core, as short as a table needs them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpu import book as books
from gpu import grant as grants
from gpu import record
from gpu.bind_request import Handover, PlannedDevice
from gpu.bind_request import render as render_handover
from gpu.book import Book, Entry
from gpu.bound_pod import ClaimedShare
from gpu.grant import Charged, DeviceGrant, Grant, render_charged
from gpu.translation import Translation
from scheduler.core.cluster import Cluster
from scheduler.core.convert import pod_groups, volumes
from scheduler.core.convert.devices import device_class_record, slice_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.groups.priority import priority_class_record
from scheduler.core.model.plan import Attempt, Bind, Hold, Join, Plan, Prepare
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.resource_claims import ResourceClaims
from scheduler.core.nodes.storage import Storage
from scheduler.core.nodes.table import GPUS
from wire import names
from wire.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Node,
    ObjectMeta,
    Pod,
    PriorityClass,
    ResourceHealth,
    ResourceStatus,
)
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.crds.topology import Topology
from wire.resource import DeviceClass, ResourceClaim, ResourceSlice
from wire.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

NANO = 1_000_000_000
_versions = itertools.count(1000)


def next_rv() -> str:
    """A resourceVersion later than all before."""
    return str(next(_versions))


def node(
    name: str = "n1",
    gpus: int = 8,
    *,
    mem_mib: int = 0,
    cpu: str = "64",
    memory: str = "512Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[tuple[str, str, str]] = (),
    ready: bool = True,
    cordoned: bool = False,
    extended: Mapping[str, Any] | None = None,
) -> Node:
    card = {names.NODE_GPU_MEMORY: str(mem_mib)} if mem_mib else {}
    allocatable = {"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi", "pods": str(pods), **(extended or {})}
    if gpus:
        allocatable[names.GPU_RESOURCE] = str(gpus)
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "resourceVersion": next_rv(),
                "labels": {names.HOSTNAME_LABEL: name, **card, **(labels or {})},
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "unschedulable": cordoned,
                "taints": [{"key": key, "value": value, "effect": effect} for key, value, effect in taints],
            },
            "status": {
                "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        },
        Node,
    )


def pod(
    name: str = "p",
    *,
    fraction: str = "",
    mem: int | str = "",
    devices: int = 0,
    gpus: int = 0,
    cpu: str = "",
    memory: str = "",
    admitted: bool = True,
    group: str = "",
    subgroup: str = "",
    namespace: str = "ns",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    scheduler: str = names.SCHEDULER_NAME,
    priority: int = 0,
    created: str = "2026-01-01T00:00:00Z",
    gated: bool = False,
    deleting: bool = False,
    bound_to: str = "",
    phase: str = "Pending",
    uid: str = "",
    spec: Mapping[str, Any] | None = None,
    extended: Mapping[str, str] | None = None,
) -> Pod:
    """A pod; with a share it has the env that admission injects."""
    asked = {
        names.GPU_FRACTION: fraction,
        names.GPU_MEMORY: str(mem),
        names.GPU_FRACTION_NUM_DEVICES: str(devices) if devices else "",
        names.POD_GROUP_NAME: group,
    }
    requests = {"cpu": cpu, "memory": memory, names.GPU_RESOURCE: str(gpus) if gpus else ""}
    requests = {key: value for key, value in requests.items() if value} | dict(extended or {})
    container: dict[str, Any] = {"name": "main", "resources": {"requests": requests, "limits": requests}}
    if admitted and (fraction or mem):
        path = f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}c0']"
        container["env"] = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    owners = [{"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "o", "controller": True}] if owner else []
    subgroup_label = {names.SUBGROUP_LABEL: subgroup} if subgroup else {}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"uid-{name}",
                "resourceVersion": next_rv(),
                "creationTimestamp": created,
                "annotations": {**{k: v for k, v in asked.items() if v}, **(annotations or {})},
                "labels": {**subgroup_label, **(labels or {})},
                "ownerReferences": owners,
                "deletionTimestamp": "2026-01-02T00:00:00Z" if deleting else None,
            },
            "spec": {
                "schedulerName": scheduler,
                "nodeName": bound_to,
                "priority": priority,
                "containers": [container],
                "schedulingGates": [{"name": "wait"}] if gated else None,
                **(spec or {}),
            },
            "status": {"phase": phase},
        },
        Pod,
    )


def recorded(translation: Translation, name: str = "p", **asked: Any) -> Pod:
    """A pod that admission has written a record for, with the env of all containers that share."""
    of = {asking.container.index for asking in translation.request.containers}
    path = "metadata.annotations['" + names.VISIBLE_DEVICES_PREFIX + "c{}']"
    containers = [
        {
            "name": f"c{index}",
            "env": [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": path.format(index)}}}]
            if index in of
            else [],
        }
        for index in range(2)
    ]
    annotations = {names.GPU_RECORD: record.render(translation), **asked.pop("annotations", {})}
    return pod(name, annotations=annotations, spec={"containers": containers, **asked.pop("spec", {})}, **asked)


def changed(obj: Pod, **metadata: Any) -> Pod:
    """The same pod at a later version, with metadata fields replaced."""
    meta = msgspec.structs.replace(obj.metadata, resource_version=next_rv(), **metadata)
    return msgspec.structs.replace(obj, metadata=meta)


def bound(
    obj: Pod,
    node_name: str,
    *given: tuple[str, int],
    reservation: str = "",
    uuid: str = "",
    with_grant: bool = True,
    compute_percent: int = 0,
    resource: str = names.GPU_RESOURCE,
    charged: Charged | None = None,
) -> Pod:
    """The pod as its Binding leaves it: node, group labels and, unless KAI bound it, the grant and the queue."""
    devices = tuple(DeviceGrant(group, reservation, uuid, nano, resource, compute_percent) for group, nano in given)
    annotations = {**(obj.metadata.annotations or {}), **render_charged(charged)}
    if with_grant and given:
        annotations[names.GRANT] = msgspec.json.encode(Grant("attempt", devices)).decode()
    labels = {**(obj.metadata.labels or {}), **(grants.group_labels([d.group for d in devices]) if devices else {})}
    moved = msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, node_name=node_name))
    return changed(moved, annotations=annotations, labels=labels)


def ended(obj: Pod, phase: str = "Succeeded", *, at: str | None = None) -> Pod:
    """The pod with all its containers terminated. ``at``: when its only one ended."""
    state = ContainerState(terminated=ContainerStateTerminated(finished_at=at))
    statuses = [ContainerStatus(name="main", state=state)] if at else None
    status = msgspec.structs.replace(obj.status, phase=phase, container_statuses=statuses)
    return changed(msgspec.structs.replace(obj, status=status))


def reservation(
    group: str,
    node_name: str = "n1",
    *,
    book: Mapping[str, int] | None = None,
    uuid: str = "GPU-1",
    mem_mib: int = 0,
    phase: str = "Running",
    deleting: bool = False,
    has_book: bool = True,
    is_ill: bool = False,
    uid: str = "",
    index: int = -1,
    mode: str = "",
    compute_percent: int = 0,
    resource: str = names.GPU_RESOURCE,
) -> Pod:
    """A reservation pod with a book of pod UID -> nano, its tenants alike in mode and compute."""
    entries = {
        key: Entry(nano, "attempt", "1", 0, "ns/p", mode=mode, compute_percent=compute_percent)
        for key, nano in (book or {}).items()
    }
    annotations = {names.RESERVE_FOR_GPU_INDEX: uuid} if uuid else {}
    if has_book:
        annotations[names.TENANTS] = books.render(Book(entries))
    if mem_mib:
        annotations[names.DEVICE_MEMORY] = str(mem_mib)
    if index >= 0:
        annotations[names.DEVICE_INDEX] = str(index)
    made = pod(
        f"gpu-reservation-{group}-{node_name}",
        namespace=names.RESERVATION_NAMESPACE,
        uid=uid or f"r-{group}",
        extended={resource: "1"},
        scheduler="default-scheduler",
        labels={names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group},
        annotations=annotations,
        bound_to=node_name,
        phase=phase,
        deleting=deleting,
    )
    if not is_ill:
        return made
    health = [ResourceStatus(name=names.GPU_RESOURCE, resources=[ResourceHealth(health=names.UNHEALTHY)])]
    running = ContainerState(running={"startedAt": "2026-01-01T00:00:00Z"})
    told = ContainerStatus(name="main", state=running, allocated_resources_status=health)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, container_statuses=[told]))


def pod_group(
    name: str, minimum: int | None = None, *, annotations: Mapping[str, str] | None = None, **spec: Any
) -> PodGroup:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"pg-{name}",
                "resourceVersion": next_rv(),
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": dict(annotations or {}),
            },
            "spec": {"minMember": minimum, **spec},
        },
        PodGroup,
    )


def priority_class(name: str, value: int, policy: str | None = None) -> PriorityClass:
    return PriorityClass(ObjectMeta(name=name), value, preemption_policy=policy)


def changed_group(obj: PodGroup, **metadata: Any) -> PodGroup:
    """The same PodGroup at a later version, with metadata fields replaced."""
    meta = msgspec.structs.replace(obj.metadata, resource_version=next_rv(), **metadata)
    return msgspec.structs.replace(obj, metadata=meta)


def by_claim(wanted: Pod, share: ClaimedShare | str | None, *, claim: str = "c") -> Pod:
    """A pod whose status maps its share to a claim, with what is written beside it."""
    written = msgspec.to_builtins(wanted)
    mapping = {"containerName": "main", "resourceName": names.GPU_SHARE_RESOURCE, "requestName": "share"}
    written["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": claim, "requestMappings": [mapping]}
    if share is not None:
        text = share if isinstance(share, str) else msgspec.json.encode(share).decode()
        written["metadata"]["annotations"][names.CLAIMED_SHARE] = text
    return msgspec.convert(written, Pod)


def queue(
    name: str,
    parent: str = "",
    *,
    gpu: tuple[float, float, float] = (0, 1, -1),
    cpu: tuple[float, float, float] = (-1, 1, -1),
    memory: tuple[float, float, float] = (-1, 1, -1),
    priority: int | None = None,
    created: str = "2026-01-01T00:00:00Z",
) -> Queue:
    """A Queue; quota, weight and limit of each resource."""
    fields = ("quota", "overQuotaWeight", "limit")
    each = {"gpu": gpu, "cpu": cpu, "memory": memory}
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created},
            "spec": {
                "parentQueue": parent,
                "priority": priority,
                "resources": {kind: dict(zip(fields, amounts, strict=True)) for kind, amounts in each.items()},
            },
        },
        Queue,
        strict=False,
    )


def topology(name: str, *labels: str, aliases: Sequence[str] = ()) -> Topology:
    """A Topology with these levels, coarse to fine."""
    levels = [
        {"nodeLabel": label, **({"alias": alias} if alias else {})}
        for label, alias in itertools.zip_longest(labels, aliases)
    ]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"levels": levels}}, Topology)


def bind_request(
    of: Pod,
    node_name: str,
    *devices: tuple[str, int],
    rv: str = "",
    handover: bool = True,
    mode: str = "",
    compute_percent: int = 0,
    resource: str = names.GPU_RESOURCE,
    charged: Charged | None = None,
) -> BindRequest:
    planned = tuple(
        PlannedDevice(group, nano, mode=mode, compute_percent=compute_percent, resource=resource)
        for group, nano in devices
    )
    text = render_handover(Handover(rv or of.metadata.resource_version, planned, charged=charged))
    return msgspec.convert(
        {
            "metadata": {
                "name": of.metadata.name,
                "namespace": of.metadata.namespace,
                "uid": f"br-{of.metadata.name}",
                "annotations": {names.HANDOVER: text} if handover else {},
                "ownerReferences": [{"kind": "Pod", "name": of.metadata.name, "uid": of.metadata.uid}],
            },
            "spec": {
                "podName": of.metadata.name,
                "selectedNode": node_name,
                "selectedGPUGroups": [group for group, _ in devices],
            },
        },
        BindRequest,
    )


def claim(
    name: str = "data",
    volume: str = "",
    *,
    bound: bool = True,
    modes: Sequence[str] = ("ReadWriteOnce",),
    storage_class: str | None = None,
    phase: str = "",
    deleting: bool = False,
    owner: str = "",
    namespace: str = "ns",
    node: str = "",
    size: str = "1Gi",
    **asked: Any,
) -> PersistentVolumeClaim:
    """A claim of a volume, bound unless said otherwise; ``owner`` is the UID of the pod that controls it.

    ``node``: where it says that it is being provisioned. ``asked``: further fields of its spec.
    """
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"claim-{name}",
                "annotations": {
                    **({names.BIND_COMPLETED: "yes"} if volume and bound else {}),
                    **({names.SELECTED_NODE: node} if node else {}),
                },
                "deletionTimestamp": "2026-01-02T00:00:00Z" if deleting else None,
                "ownerReferences": [{"kind": "Pod", "name": "p", "uid": owner, "controller": True}] if owner else [],
            },
            "spec": {
                "volumeName": volume,
                "accessModes": list(modes),
                "storageClassName": storage_class,
                "resources": {"requests": {"storage": size}},
                **asked,
            },
            "status": {"phase": phase},
        },
        PersistentVolumeClaim,
    )


def volume(
    name: str,
    *,
    of: str = "data",
    labels: Mapping[str, str] | None = None,
    affinity: Sequence[Mapping[str, Any]] | None = None,
    csi: tuple[str, str] | None = None,
) -> PersistentVolume:
    """A volume for the claim ``of``; ``affinity`` holds terms of nodes, ``csi`` a driver and a handle."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": {
                "claimRef": {"namespace": "ns", "name": of},
                "csi": None if csi is None else {"driver": csi[0], "volumeHandle": csi[1]},
                "nodeAffinity": None if affinity is None else {"required": {"nodeSelectorTerms": list(affinity)}},
            },
        },
        PersistentVolume,
    )


def free_volume(
    name: str,
    size: str = "1Gi",
    *,
    of: str = "slow",
    node: str = "",
    claim_ref: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    phase: str = "Available",
    **more: Any,
) -> PersistentVolume:
    """A volume of the class ``of`` that nobody has; ``node``: the only one that reaches it, by its host's label."""
    term = {"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": list(modes),
                "storageClassName": of,
                "claimRef": claim_ref,
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}} if node else None,
                **more,
            },
            "status": {"phase": phase},
        },
        PersistentVolume,
    )


def storage_class(name: str, mode: str, **more: Any) -> StorageClass:
    return msgspec.convert({"metadata": {"name": name}, "volumeBindingMode": mode, **more}, StorageClass)


def csi_driver(name: str, *, tells_capacity: bool = True) -> CSIDriver:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"storageCapacity": tells_capacity}}, CSIDriver)


def csi_capacity(
    name: str, of: str, labels: Mapping[str, str] | None, *, free: str | None = None, most: str | None = None
) -> CSIStorageCapacity:
    """How much can be made of the class ``of`` on nodes with these labels."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "csi"},
            "storageClassName": of,
            "nodeTopology": None if labels is None else {"matchLabels": dict(labels)},
            "capacity": free,
            "maximumVolumeSize": most,
        },
        CSIStorageCapacity,
    )


def csi_node(node_name: str, **most: int | None) -> CSINode:
    """What CSI drivers say of a node: how many volumes it takes at most."""
    drivers = [
        {"name": name, "allocatable": None if count is None else {"count": count}} for name, count in most.items()
    ]
    return msgspec.convert({"metadata": {"name": node_name}, "spec": {"drivers": drivers}}, CSINode)


def attachment(name: str, node_name: str, *, of: str, driver: str) -> VolumeAttachment:
    """A volume of this name that a driver has on a node."""
    spec = {"attacher": driver, "nodeName": node_name, "source": {"persistentVolumeName": of}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, VolumeAttachment)


Stored = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | VolumeAttachment
    | CSIDriver
    | CSIStorageCapacity
)
Offered = ResourceClaim | ResourceSlice | DeviceClass
Fed = Node | Pod | PodGroup | BindRequest | Queue | Topology | PriorityClass | Stored | Offered


def cluster(*objects: Fed, settings: Settings | None = None, filters: Filters = FILTERS) -> Cluster:
    """A cluster that has seen these objects, in this order; nobody is evicted for others unless settings are given."""
    made = Cluster(settings or Settings(preemption=False), filters)
    feed(made, *objects)
    return made


def feed(made: Cluster, *objects: Fed) -> None:
    for obj in objects:
        match obj:
            case Node():
                made.upsert_node(obj)
            case Pod():
                made.upsert_pod(obj)
            case PodGroup():
                made.upsert_pod_group(obj)
            case BindRequest():
                made.upsert_bind_request(obj)
            case Queue():
                made.queues.records.put(pod_groups.queue_record(obj))
            case Topology():
                made.topologies.of_kai.put(pod_groups.topology_record(obj))
            case PriorityClass():
                made.priorities.classes.put(priority_class_record(obj))
            case ResourceClaim() | ResourceSlice() | DeviceClass():
                _feed_claims(made.claims, obj)
            case _:
                _feed_storage(made.storage, obj)


def _feed_claims(claims: ResourceClaims, obj: Offered) -> None:
    match obj:
        case ResourceClaim():
            claims.claims.put(resource_claim_record(obj))
        case ResourceSlice():
            claims.inventory.slices.put(slice_record(obj))
        case DeviceClass():
            claims.inventory.classes.put(device_class_record(obj))


def _feed_storage(storage: Storage, obj: Stored) -> None:
    match obj:
        case PersistentVolumeClaim():
            storage.claims.put(volumes.claim_record(obj))
        case PersistentVolume():
            storage.volumes.put(volumes.volume_record(obj))
        case StorageClass():
            storage.classes.put(volumes.storage_class_record(obj))
        case CSINode():
            storage.attachments.limits.put(volumes.limits_record(obj))
        case CSIDriver():
            storage.offers.drivers.put(volumes.driver_record(obj))
        case CSIStorageCapacity():
            storage.offers.capacities.put(volumes.capacity_record(obj))
        case VolumeAttachment():
            storage.attachments.attached.put(volumes.attachment_record(obj))


def free_gpus(made: Cluster, name: str = "n1") -> int:
    """Whole devices that a node has left, where the ledger agrees with a recount."""
    ledger = made.refresh()
    assert made.validate() == []
    return int(ledger.table.free[GPUS, ledger.row_of[name]])


def commit(made: Cluster, plan: Plan) -> None:
    """Charge what a plan places, as the shell does."""
    for entry in plan.entries:
        match entry:
            case Attempt(placement):
                made.commits.open(placement)
            case Hold(placement):
                made.commits.hold(placement)
            case Bind(placement) | Join(placement):
                made.commits.assume(placement)
            case Prepare(placements):
                for each in placements:
                    made.commits.prepare(each)
            case _:
                pass
