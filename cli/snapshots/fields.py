"""What a snapshot keeps of each object: the fields that decisions read, named one by one.

Commands, arguments, environment, Secrets, messages and annotations that no decision reads are not among them, so a
field that Kubernetes adds tomorrow is left out as well. Labels are kept: selectors read them. Held by
``test_leaving_out.py``: what the scheduler reads of an object is what it reads of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from gpu.dialects import nvfractions
from gpu.translate import registry
from wire import gangs, names
from wire.core import (
    Condition,
    ConfigMapKeySelector,
    Container,
    ContainerExtendedResourceRequest,
    ContainerPort,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    EnvVar,
    EnvVarSource,
    Job,
    Namespace,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectFieldSelector,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodExtendedResourceClaimStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Volume,
)
from wire.crds.bindrequest import BindRequest, BindRequestSpec, BindRequestStatus
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.resource import (
    AllocatedDeviceStatus,
    AllocationResult,
    Device,
    DeviceClass,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from wire.storage import PersistentVolume, PersistentVolumeClaim

#: Those that ask for a gang in one way or another, of pods and of Jobs.
_OF_GANGS: Final = frozenset({
    *gangs.ALL, names.BATCH_MIN_MEMBER, names.SEGMENT_SIZE, names.SEGMENT_TOPOLOGY_REQUIRED,
    names.SEGMENT_TOPOLOGY_PREFERRED, names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED,
})  # fmt: skip
_OF_PODS: Final = frozenset({
    *_OF_GANGS, names.POD_GROUP_NAME, names.IGNORE_WORKLOAD_API, names.GPU_RECORD, names.GRANT, names.CHARGED,
    names.TENANTS, names.DEVICE_INDEX, names.DEVICE_MEMORY, names.RESERVE_FOR_GPU_INDEX, names.DEVICE_REPORTER,
    names.SHARED_GPU_CONFIGMAP, names.RECEIVED_RESOURCE_TYPE, names.DO_NOT_DISRUPT, names.REQUIRE_ENFORCEMENT,
    names.MAX_RUNTIME, names.GPU_MEMORY_RESERVE,
})  # fmt: skip


def _of_pod(key: str) -> bool:
    is_mig = key.startswith(names.MIG_RESOURCE_PREFIX)
    return key in _OF_PODS or is_mig or registry.is_word(key, is_label=False) or nvfractions.is_written(key)


#: Type of an object -> whether an annotation of it is kept. Of other types none is.
IS_KEPT: Final[Mapping[type, Callable[[str], bool]]] = {
    Pod: _of_pod,
    Node: {
        names.NODE_CARDS,
        names.NODE_UUIDS,
        names.NODE_ENFORCES,
        names.HAMI_NODE_REGISTER,
        names.GPU_MEMORY_RESERVE,
    }.__contains__,
    Job: _OF_GANGS.__contains__,
    PodGroup: frozenset({*_OF_GANGS, names.STALE_SINCE, names.KEPT_MINIMUM, names.PLAN}).__contains__,
    Queue: {names.PATIENCE}.__contains__,
    Namespace: {names.DIALECTS, names.QUEUES}.__contains__,
    BindRequest: {names.HANDOVER}.__contains__,
    PersistentVolume: {names.OLD_STORAGE_CLASS}.__contains__,
    PersistentVolumeClaim: {names.BIND_COMPLETED, names.OLD_STORAGE_CLASS, names.SELECTED_NODE}.__contains__,
    ResourceClaim: {names.EXTENDED_RESOURCE_CLAIM}.__contains__,
}


#: Stands for amounts of nodes that a device maps to: that there are any keeps it from everybody.
_SOMETHING: Final[dict[str, Any]] = {"left": "out"}
_replace: Final = msgspec.structs.replace


def _claim(claim: ResourceClaim) -> ResourceClaim:
    asked, status = claim.spec.devices, claim.status
    return ResourceClaim(
        metadata=claim.metadata,
        spec=_replace(claim.spec, devices=_replace(asked, config=None)),
        status=ResourceClaimStatus(
            allocation=None if status.allocation is None else _allocation(status.allocation),
            reserved_for=status.reserved_for,
            devices=[_device_status(each) for each in status.devices or ()] or None,
        ),
    )


def _allocation(allocation: AllocationResult) -> AllocationResult:
    return _replace(allocation, devices=_replace(allocation.devices, config=None))


def _device_status(status: AllocatedDeviceStatus) -> AllocatedDeviceStatus:
    conditions = [Condition(type=each.type, status=each.status) for each in status.conditions or ()]
    return _replace(status, conditions=conditions or None)


def _slice(published: ResourceSlice) -> ResourceSlice:
    devices = [_device(each) for each in published.spec.devices or ()] or None
    return ResourceSlice(metadata=published.metadata, spec=_replace(published.spec, devices=devices))


def _device(device: Device) -> Device:
    if not device.node_allocatable_resource_mappings:
        return device
    return _replace(device, node_allocatable_resource_mappings=_SOMETHING)


def _class(device_class: DeviceClass) -> DeviceClass:
    return DeviceClass(metadata=device_class.metadata, spec=_replace(device_class.spec, config=None))


#: What is kept of these is all but parameters of drivers. No decision reads the parameters, and a driver may take
#: anything in them.
KEEP: Final[Mapping[type, Callable[[Any], Any]]] = {ResourceClaim: _claim, ResourceSlice: _slice, DeviceClass: _class}


T = TypeVar("T", bound=msgspec.Struct)

#: Conditions of pods that decisions read: a resize that can't be, and pods that garbage collection has marked.
_CONDITIONS: Final = frozenset({"PodResizePending", "DisruptionTarget"})
_READY: Final = "Ready"
#: Variables that say how a container reads its devices and caps: by which annotation or ConfigMap.
_VARIABLES: Final = frozenset({names.ENV_VISIBLE_DEVICES, names.ENV_MEMORY_LIMIT})


def kept(obj: T) -> T:
    """The object without what decisions don't read."""
    keep: Callable[[Any], Any] | None = _KEEP.get(type(obj))
    found: T = obj if keep is None else keep(obj)
    meta: ObjectMeta = found.metadata  # type: ignore[attr-defined] # all objects of a cluster have it
    return msgspec.structs.replace(found, metadata=_meta(meta, IS_KEPT.get(type(obj), _none)))


def _none(_: str) -> bool:
    return False


# --- metadata --------------------------------------------------------------------------------------------------------
def _meta(meta: ObjectMeta, is_kept: Callable[[str], bool]) -> ObjectMeta:
    return ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        labels=meta.labels,
        annotations=_chosen(meta.annotations, is_kept),
        finalizers=_listed(name for name in meta.finalizers or () if name == names.BOOK_FINALIZER),
        owner_references=_listed(map(_owner, meta.owner_references or ())),
        creation_timestamp=meta.creation_timestamp,
        deletion_timestamp=meta.deletion_timestamp,
    )


def _owner(owner: OwnerReference) -> OwnerReference:
    return msgspec.structs.replace(owner, block_owner_deletion=None)


def _chosen(found: Mapping[str, str] | None, is_kept: Callable[[str], bool]) -> dict[str, str] | None:
    return {key: text for key, text in found.items() if is_kept(key)} or None if found else None


def _listed(found: Iterator[T] | Iterator[str]) -> Any:
    """A list, None for an empty one."""
    return [*found] or None


# --- pods ------------------------------------------------------------------------------------------------------------
def _pod(pod: Pod) -> Pod:
    spec, prefix = pod.spec, (pod.metadata.annotations or {}).get(names.SHARED_GPU_CONFIGMAP, "")

    def containers(found: Sequence[Container] | None) -> list[Container]:
        return [_container(each, prefix) for each in found or ()]

    return Pod(
        metadata=pod.metadata,
        spec=PodSpec(
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            priority=spec.priority,
            termination_grace_period_seconds=spec.termination_grace_period_seconds,
            active_deadline_seconds=spec.active_deadline_seconds,
            host_network=spec.host_network,
            host_users=spec.host_users,
            host_pid=spec.host_pid,
            containers=containers(spec.containers),
            init_containers=containers(spec.init_containers) or None,
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            tolerations=spec.tolerations,
            topology_spread_constraints=spec.topology_spread_constraints,
            scheduling_gates=spec.scheduling_gates,
            overhead=spec.overhead,
            volumes=_listed(each for volume in spec.volumes or () if (each := _volume(volume)) is not None),
            resource_claims=spec.resource_claims,
            workload_ref=_SOMETHING if spec.workload_ref else None,
            scheduling_group=_group(spec.scheduling_group),
            resources=_amounts(spec.resources),
        ),
        status=_status(pod.status),
    )


def _group(written: dict[str, Any] | None) -> dict[str, Any] | None:
    """The PodGroup of Kubernetes' Workload API, whose claims are the pod's as well."""
    name = (written or {}).get("podGroupName")
    return {"podGroupName": name} if isinstance(name, str) else _SOMETHING if written else None


def _container(container: Container, prefix: str) -> Container:
    resources = container.resources
    return Container(
        name=container.name,
        image=container.image,
        env=_variables(container, prefix),
        resources=msgspec.structs.replace(resources, claims=[_SOMETHING] if resources.claims else None),
        ports=_listed(map(_port, (port for port in container.ports or () if port.host_port))),
        restart_policy=container.restart_policy,
        restart_policy_rules=container.restart_policy_rules,
    )


def _port(port: ContainerPort) -> ContainerPort:
    return ContainerPort(host_port=port.host_port, protocol=port.protocol, host_ip=port.host_ip)


def _variables(container: Container, prefix: str) -> list[EnvVar] | None:
    """Of these variables the name and where it is read from; no value. Of several of one name all, in their order."""
    return [
        EnvVar(name=each.name, value_from=_source(each.value_from, prefix))
        for each in container.env or ()
        if each.name in _VARIABLES
    ] or None


def _source(source: EnvVarSource | None, prefix: str) -> EnvVarSource | None:
    """An annotation of ours, or the ConfigMap of the pod's shares; of all others nothing but that there is one."""
    if source is None:
        return None
    field, key = source.field_ref, source.config_map_key_ref
    is_ours = field is not None and field.field_path.startswith(_OUR_FIELDS)
    is_handed = key is not None and bool(prefix) and key.name.startswith(prefix)
    return EnvVarSource(
        field_ref=None if field is None else ObjectFieldSelector(field_path=field.field_path if is_ours else ""),
        config_map_key_ref=None if key is None else ConfigMapKeySelector(name=key.name if is_handed else ""),
    )


_OUR_FIELDS: Final = tuple(
    f"metadata.annotations['{prefix}" for prefix in (names.VISIBLE_DEVICES_PREFIX, names.ENV_PREFIX)
)


def _volume(volume: Volume) -> Volume | None:
    """Claims, and disks that count against a limit or can't be shared; other volumes matter to nobody here."""
    claim = volume.persistent_volume_claim
    found = msgspec.structs.replace(
        volume,
        config_map=None,
        projected=None,
        persistent_volume_claim=None if claim is None else {"claimName": str(claim.get("claimName", ""))},
        ephemeral=None if volume.ephemeral is None else {},
    )
    return None if found == Volume(name=volume.name) else found


def _amounts(resources: ResourceRequirements | None) -> ResourceRequirements | None:
    return None if resources is None else msgspec.structs.replace(resources, claims=None)


def _status(status: PodStatus) -> PodStatus:
    return PodStatus(
        phase=status.phase,
        conditions=_conditions(status.conditions, _CONDITIONS, with_reason=True),
        container_statuses=_listed(map(_container_status, status.container_statuses or ())),
        init_container_statuses=_listed(map(_container_status, status.init_container_statuses or ())),
        resources=_amounts(status.resources),
        allocated_resources=status.allocated_resources,
        resource_claim_statuses=status.resource_claim_statuses,
        extended_resource_claim_status=_by_claim(status.extended_resource_claim_status),
        start_time=status.start_time,
    )


def _by_claim(status: PodExtendedResourceClaimStatus | None) -> PodExtendedResourceClaimStatus | None:
    """The claim for extended resources of a pod, and which resources its devices are."""
    if status is None:
        return None
    mapped = {each.resource_name for each in status.request_mappings or ()}
    return PodExtendedResourceClaimStatus(
        resource_claim_name=status.resource_claim_name,
        request_mappings=[ContainerExtendedResourceRequest(resource_name=each) for each in sorted(mapped)],
    )


def _conditions(
    found: Sequence[Condition] | None, types: Collection[str], *, with_reason: bool
) -> list[Condition] | None:
    return [
        Condition(type=each.type, status=each.status, reason=each.reason if with_reason else "")
        for each in found or ()
        if each.type in types
    ] or None


def _container_state(state: ContainerState | None) -> ContainerState | None:
    """When a container ended is kept: a member that succeeded counts in its gang by that."""
    if state is None:
        return None
    ended = state.terminated
    return ContainerState(
        running=None if state.running is None else {},
        terminated=None if ended is None else ContainerStateTerminated(finished_at=ended.finished_at),
    )


def _container_status(status: ContainerStatus) -> ContainerStatus:
    return ContainerStatus(
        name=status.name,
        state=_container_state(status.state),
        resources=_amounts(status.resources),
        allocated_resources=status.allocated_resources,
        allocated_resources_status=status.allocated_resources_status,
    )


# --- others ----------------------------------------------------------------------------------------------------------
def _node(node: Node) -> Node:
    status = node.status
    return Node(
        metadata=node.metadata,
        spec=NodeSpec(unschedulable=node.spec.unschedulable, taints=node.spec.taints),
        status=NodeStatus(
            images=status.images,
            capacity=status.capacity,
            allocatable=status.allocatable,
            conditions=_conditions(status.conditions, {_READY}, with_reason=False),
            declared_features=status.declared_features,
        ),
    )


def _queue(queue: Queue) -> Queue:
    return Queue(metadata=queue.metadata, spec=msgspec.structs.replace(queue.spec, display_name=""))


def _pod_group(group: PodGroup) -> PodGroup:
    return PodGroup(metadata=group.metadata, spec=group.spec)


def _bind_request(request: BindRequest) -> BindRequest:
    spec = request.spec
    return BindRequest(
        metadata=request.metadata,
        spec=BindRequestSpec(
            pod_name=spec.pod_name,
            selected_node=spec.selected_node,
            received_resource_type=spec.received_resource_type,
            received_gpu=spec.received_gpu,
            selected_gpu_groups=spec.selected_gpu_groups,
            backoff_limit=spec.backoff_limit,
        ),
        status=BindRequestStatus(phase=request.status.phase, failed_attempts=request.status.failed_attempts),
    )


def _bare(obj: Namespace | Job) -> Namespace | Job:
    return type(obj)(metadata=obj.metadata)


_KEEP: Final[Mapping[type, Callable[[Any], Any]]] = {
    Pod: _pod,
    Node: _node,
    Queue: _queue,
    PodGroup: _pod_group,
    BindRequest: _bind_request,
    Namespace: _bare,
    Job: _bare,
    **KEEP,
}
