"""The door of the core: wire objects in, slim records out. Nothing behind it sees a wire object.

What can't be read never stops the loop: of a pod it becomes the reason why that pod waits, of a node it counts as not
being there.
"""

from __future__ import annotations

from sys import intern

import msgspec

from gpu import grant, order, reservation, room
from gpu.dialects import kai
from gpu.order import Foreign
from gpu.refusal import Refusal
from gpu.request import NO_GPU, ContainerKind, ContainerRef, GpuRequest
from scheduler.core import constraining, gangplan, gangs, requests
from scheduler.core.records import (
    ANYWHERE,
    BindRequestRecord,
    Constraints,
    Demand,
    Held,
    NodeRecord,
    PodClass,
    PodGroupRecord,
    PodRecord,
    SeenPod,
    SubgroupRecord,
)
from scheduler.core.settings import Settings
from scheduler.core.verdict import Code, Verdict
from wire import names
from wire.core import Container, EnvVar, Node, Pod, PodStatus
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.quantity import NANO, MalformedQuantity, mib_down, milli_down, parse_nano

_ENDED = {names.SUCCEEDED, names.FAILED}
_READY = "Ready"
_MIG_SINGLE = "single"
_MIG_ENABLED_LABEL = "node-role.kubernetes.io/mig-enabled"
#: A memory label above this many MiB (16 TiB) was written in bytes (kai-contract 1.2).
_ABSURD_MIB = 2**24
_BYTES_PER_MIB = 2**20
#: What a node says is cut to a billion cores and a million devices, so that ranks fit into 64 bits (ranking.py).
_MOST_CPU_MILLI = 2**40
_MOST_GPUS = 2**20


def is_ours(pod: Pod, settings: Settings) -> bool:
    """Whether this scheduler places ``pod``."""
    return pod.spec.scheduler_name == settings.scheduler_name


def is_reservation(pod: Pod, settings: Settings) -> bool:
    """Whether ``pod`` holds a device for others."""
    return reservation.is_reservation(pod, settings.reservation_namespace, app=settings.reservation_app)


def has_ended(status: PodStatus) -> bool:
    """Whether a pod holds nothing any more: its phase says so, and no container is seen running (evictions)."""
    containers = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    return status.phase in _ENDED and not any(c.state and c.state.running is not None for c in containers)


def seen_pod(pod: Pod, settings: Settings) -> SeenPod:
    """Read a pod: whether it runs, has ended, or holds a device for others."""
    return SeenPod(
        uid=pod.metadata.uid,
        rv=pod.metadata.resource_version,
        has_ended=has_ended(pod.status),
        record=pod_record(pod, settings),
        reservation=reservation.read(pod) if is_reservation(pod, settings) else None,
    )


def pod_record(pod: Pod, settings: Settings) -> PodRecord | None:
    """Read a pod; None if it doesn't matter: ended, or neither bound nor ours."""
    if has_ended(pod.status):
        return None
    if pod.spec.node_name:
        return _bound(pod, settings)
    if not is_ours(pod, settings) or pod.status.phase in _ENDED:
        return None
    return _waiting(pod)


def _bound(pod: Pod, settings: Settings) -> PodRecord:
    request = kai.translate(pod)
    cls = PodClass(demand=_lenient_demand(pod), request=NO_GPU if isinstance(request, Refusal) else request)
    return msgspec.structs.replace(
        _record(pod, cls),
        node=intern(pod.spec.node_name),
        is_reservation=is_reservation(pod, settings),
        held=_held(pod),
    )


def _waiting(pod: Pod) -> PodRecord:
    try:
        demand, problem = requests.demand(pod), ""
    except requests.MalformedDemand as error:
        demand, problem = Demand(), str(error)
    asked = kai.translate(pod)
    if isinstance(asked, Refusal):
        problem = asked.message
    request = NO_GPU if isinstance(asked, Refusal) else asked
    if (no_room := room.cramped(pod.metadata.annotations, request)) is not None:
        problem = no_room.message
    hand_over = _hand_over(pod, request)
    problem = problem or _taken_back(pod, request)
    cls = PodClass(
        demand=demand,
        request=request,
        constraints=_shared_constraints(pod),
        by_config_map=_Source.CONFIG_MAP in hand_over,
    )
    admitted = _Source.NONE not in hand_over
    return msgspec.structs.replace(
        _record(pod, cls),
        gated=bool(pod.spec.scheduling_gates),
        blocker=_blocker(pod, problem=problem, admitted=admitted),
    )


def _record(pod: Pod, cls: PodClass) -> PodRecord:
    meta = pod.metadata
    labels = meta.labels or {}
    # What many pods share is kept once.
    return PodRecord(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        rv=meta.resource_version,
        node="",
        cls=cls,
        created=intern(meta.creation_timestamp or ""),
        priority=pod.spec.priority or 0,
        task_priority=_integer(labels.get(names.TASK_PRIORITY_LABEL, "")),
        pod_group=intern((meta.annotations or {}).get(names.POD_GROUP_NAME, "")),
        subgroup=intern(labels.get(names.SUBGROUP_LABEL, "")),
        deleting=meta.deletion_timestamp is not None,
        grace_s=30 if (grace_s := pod.spec.termination_grace_period_seconds) is None else grace_s,
    )


def _shared_constraints(pod: Pod) -> Constraints:
    found = constraining.constraints(pod)
    return ANYWHERE if found == ANYWHERE else found


def _lenient_demand(pod: Pod) -> Demand:
    """Read a bound pod; an unreadable one runs all the same, and counts with nothing but its slot."""
    try:
        return requests.demand(pod)
    except requests.MalformedDemand:
        return Demand()


def _blocker(pod: Pod, *, problem: str, admitted: bool) -> Verdict | None:
    if problem:
        return Verdict(code=Code.INVALID_REQUEST, detail=problem)
    if constraint := constraining.unsupported(pod):
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=constraint)
    in_group = (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME)
    if not in_group and (kind := gangs.gang_kind(pod)):
        return Verdict(code=Code.NO_POD_GROUP, detail=kind)
    return None if admitted else Verdict(code=Code.NOT_ADMITTED)


class _Source:
    """How a container reads which devices it was given."""

    ANNOTATION = "annotation"
    CONFIG_MAP = "config-map"
    NONE = "none"


def _hand_over(pod: Pod, request: GpuRequest) -> set[str]:
    """How the containers with a share read their devices: the ways seen; empty when there are no shares."""
    if not request.is_shared:
        return set()
    return {_source(pod, asked.container) for asked in request.containers}


def _taken_back(pod: Pod, request: GpuRequest) -> str:
    """Say which container reads a ConfigMap though its ask is gone; "" if none does.

    It would wait for ever for one that nobody writes, or see the devices of an attempt that failed.
    """
    if names.SHARED_GPU_CONFIGMAP not in (pod.metadata.annotations or {}):
        return ""
    asked = {each.container.key for each in request.containers} if request.is_shared else set()
    listed = ((ContainerKind.INIT, pod.spec.init_containers or ()), (ContainerKind.REGULAR, pod.spec.containers))
    for kind, containers in listed:
        for index, container in enumerate(containers):
            ref = ContainerRef(kind, index)
            if ref.key not in asked and _source(pod, ref) == _Source.CONFIG_MAP:
                return f"container {container.name} shares no GPU any more, but reads which: make the pod anew"
    return ""


def _source(pod: Pod, ref: ContainerRef) -> str:
    variable = _variable(_container(pod, ref))
    source = variable.value_from if variable else None
    if source is None:
        return _Source.NONE
    if source.field_ref is not None:
        wanted = f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}{ref.key}']"
        return _Source.ANNOTATION if source.field_ref.field_path == wanted else _Source.NONE
    prefix = (pod.metadata.annotations or {}).get(names.SHARED_GPU_CONFIGMAP, "")
    by_map = source.config_map_key_ref
    return _Source.CONFIG_MAP if by_map and prefix and by_map.name.startswith(prefix) else _Source.NONE


def _container(pod: Pod, ref: ContainerRef) -> Container | None:
    containers = pod.spec.init_containers or [] if ref.kind is ContainerKind.INIT else pod.spec.containers
    return containers[ref.index] if ref.index < len(containers) else None


def _variable(container: Container | None) -> EnvVar | None:
    """The entry that counts: kubelet lets the last one of a name win."""
    found = [v for v in (container.env if container else None) or () if v.name == names.ENV_VISIBLE_DEVICES]
    return found[-1] if found else None


def _held(pod: Pod) -> tuple[Held, ...]:
    """A bound pod's parts of devices: its grant, else the groups that its labels name."""
    given = grant.read(pod.metadata.annotations)
    if given is not None:
        return tuple(Held(d.group, d.nano, d.reservation, d.uuid) for d in given.devices)
    return tuple(Held(group, None) for group in grant.labelled_groups(pod.metadata.labels))


def node_record(node: Node) -> NodeRecord:
    """Read a node; a resource that can't be read counts as none."""
    labels = node.metadata.labels or {}
    allocatable = node.status.allocatable or {}
    smallest, largest = _cards(node)
    return NodeRecord(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=labels,
        taints=tuple(node.spec.taints or ()),
        is_ready=any(c.type == _READY and c.status == "True" for c in node.status.conditions or ()),
        is_cordoned=node.spec.unschedulable,
        capacity=_capacity(allocatable),
        pods=_amount(names.PODS_RESOURCE, allocatable.get(names.PODS_RESOURCE, 0)),
        smallest_card_mib=smallest,
        largest_card_mib=largest,
        is_mig=_is_mig(labels, allocatable),
    )


def _capacity(allocatable: dict[str, str | int | float]) -> Demand:
    amounts = {name: _amount(name, value) for name, value in allocatable.items()}
    return Demand(
        cpu_milli=min(amounts.pop(names.CPU_RESOURCE, 0), _MOST_CPU_MILLI),
        mem_mib=amounts.pop(names.MEMORY_RESOURCE, 0),
        ephemeral_mib=amounts.pop(names.EPHEMERAL_STORAGE_RESOURCE, 0),
        gpus=min(amounts.pop(names.GPU_RESOURCE, 0), _MOST_GPUS),
        extended=tuple(sorted((k, v) for k, v in amounts.items() if v > 0 and k != names.PODS_RESOURCE)),
    )


def _amount(name: str, value: str | float) -> int:
    try:
        if name == names.CPU_RESOURCE:
            return milli_down(value)
        if name in {names.MEMORY_RESOURCE, names.EPHEMERAL_STORAGE_RESOURCE}:
            return mib_down(value)
        return parse_nano(value) // NANO
    except MalformedQuantity:
        return 0


def _cards(node: Node) -> tuple[int, int]:
    """Memory of the smallest and the largest card in MiB: our annotation if it is readable, else NVIDIA's label."""
    listed = (node.metadata.annotations or {}).get(names.NODE_CARDS, "").split(",")
    cards = [_integer(card.strip()) for card in listed]
    if all(0 < card <= _ABSURD_MIB for card in cards):
        return min(cards), max(cards)
    labelled = _integer((node.metadata.labels or {}).get(names.NODE_GPU_MEMORY, ""))
    card = labelled // _BYTES_PER_MIB if labelled > _ABSURD_MIB else labelled
    return (card, card) if 0 < card <= _ABSURD_MIB else (0, 0)


def _is_mig(labels: dict[str, str], allocatable: dict[str, str | int | float]) -> bool:
    """Whether the node has MIG slices, also as its ``nvidia.com/gpu``: shares are refused there (contract 4.12)."""
    if _MIG_ENABLED_LABEL in labels:
        return labels[_MIG_ENABLED_LABEL].lower() == "true"
    sliced = any(k.startswith(names.MIG_RESOURCE_PREFIX) and _amount(k, v) > 0 for k, v in allocatable.items())
    return sliced or labels.get(names.NODE_MIG_STRATEGY) == _MIG_SINGLE


def _integer(text: str) -> int:
    """A decimal integer as people write it in labels; anything else is 0."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        return 0
    return int(text)


def pod_group_record(group: PodGroup) -> PodGroupRecord:
    """Read a PodGroup. Without ``minMember`` each subgroup's minimum holds, or one pod if there are none."""
    spec = group.spec
    subgroups = tuple(SubgroupRecord(s.name, s.min_member or 0) for s in spec.sub_groups or ())
    default = sum(s.minimum for s in subgroups) if subgroups else 1
    meta = group.metadata
    return PodGroupRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        rv=meta.resource_version,
        minimum=max(spec.min_member if spec.min_member is not None else default, 0),
        created=meta.creation_timestamp or "",
        subgroups=subgroups,
        unsupported=_unsupported_in(group),
        planned=gangplan.members((meta.annotations or {}).get(names.PLAN)),
    )


def _unsupported_in(group: PodGroup) -> str:
    spec = group.spec
    nested = any(s.parent or s.min_sub_group is not None for s in spec.sub_groups or ())
    constrained = [spec.topology_constraint, *(s.topology_constraint for s in spec.sub_groups or ())]
    found = {
        "minSubGroup": spec.min_sub_group is not None or nested,
        "topologyConstraint.requiredTopologyLevel": any(c and c.required_topology_level for c in constrained),
    }
    return ", ".join(name for name, is_there in found.items() if is_there)


def bind_request_record(request: BindRequest) -> BindRequestRecord | None:
    """Read a hand-over; None if it is not one that our binder would carry out."""
    ordered = order.read(request)
    if isinstance(ordered, Foreign):
        return None
    meta = request.metadata
    return BindRequestRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        pod_uid=ordered.pod_uid,
        node=request.spec.selected_node,
        rv=ordered.handover.rv,
        devices=ordered.handover.devices,
    )
