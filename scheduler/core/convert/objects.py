"""The door of the core: wire objects in, slim records out. Nothing behind it sees a wire object.

What can't be read never stops the loop: of a pod it becomes the reason why that pod waits, of a node it counts as not
being there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from sys import intern
from typing import Final

import msgspec

from gpu import enforcement, grant, order, reservation, room, slices
from gpu.asked import PLAIN, asked_when_bound, mode_of, recorded, unrecorded
from gpu.cards import cards_mib, integer
from gpu.dialects import vocabulary
from gpu.ended import has_ended
from gpu.multiplied import multiplied
from gpu.order import Foreign
from gpu.refusal import Refusal, shown, told
from gpu.request import NO_GPU
from gpu.translation import Cards, Translation
from scheduler.core.convert import (
    constraints,
    device_env,
    gang_kinds,
    job_owners,
    queues,
    selectors,
    volumes,
    written_plan,
)
from scheduler.core.convert import demand as requests
from scheduler.core.convert.device_env import Source
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.minimum_tree import Contradiction, MinimumTree, Part, minimum_tree
from scheduler.core.model.records import (
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
    SucceededMember,
)
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from wire import goduration, names, rfc3339
from wire.core import Node, ObjectMeta, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup, PodGroupSpec
from wire.quantity import NANO, MalformedQuantity, mib_down, milli_down, parse_nano

_NOTHING = Translation(dialect=PLAIN, request=NO_GPU)
_ENDED = {names.SUCCEEDED, names.FAILED}
_READY = "Ready"
#: A device as NVML names it.
_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,64}", re.ASCII)
_MIG_SINGLE = "single"
_MIG_ENABLED_LABEL = "node-role.kubernetes.io/mig-enabled"
#: What a node says is cut to a billion cores and a million devices, so that ranks fit into 64 bits (ranking.py).
_MOST_CPU_MILLI = 2**40
_MOST_GPUS = 2**20
_S: Final = 1_000_000_000


def is_ours(pod: Pod, settings: Settings) -> bool:
    """Whether this scheduler places ``pod``."""
    return pod.spec.scheduler_name == settings.scheduler_name


def is_reservation(pod: Pod, settings: Settings) -> bool:
    """Whether ``pod`` holds a device for others."""
    return reservation.is_reservation(pod, settings.reservation_namespace, app=settings.reservation_app)


def seen_pod(pod: Pod, settings: Settings, filters: Filters = FILTERS) -> SeenPod:
    """Read a pod: whether it runs, has ended, or holds a device for others."""
    return SeenPod(
        uid=pod.metadata.uid,
        rv=pod.metadata.resource_version,
        has_ended=has_ended(pod.status),
        record=pod_record(pod, settings, filters),
        reservation=reservation.read(pod) if is_reservation(pod, settings) else None,
        succeeded=_succeeded(pod),
    )


def _succeeded(pod: Pod) -> SucceededMember | None:
    meta = pod.metadata
    group = (meta.annotations or {}).get(names.POD_GROUP_NAME, "")
    if not group or pod.status.phase != names.SUCCEEDED or not has_ended(pod.status):
        return None
    return SucceededMember(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        pod_group=intern(group),
        subgroup=_subgroup(meta),
        controller=_controller(meta),
    )


def _subgroup(meta: ObjectMeta) -> str:
    return intern((meta.labels or {}).get(names.SUBGROUP_LABEL, ""))


def _controller(meta: ObjectMeta) -> str:
    return next((intern(owner.uid) for owner in meta.owner_references or () if owner.controller), "")


def pod_record(pod: Pod, settings: Settings, filters: Filters = FILTERS) -> PodRecord | None:
    """Read a pod; None if it doesn't matter: ended, or neither bound nor ours."""
    if has_ended(pod.status):
        return None
    if pod.spec.node_name:
        return _bound(pod, settings)
    if not is_ours(pod, settings) or pod.status.phase in _ENDED:
        return None
    return _waiting(pod, settings, filters)


def _bound(pod: Pod, settings: Settings) -> PodRecord:
    found = asked_when_bound(pod)
    known = _NOTHING if isinstance(found, Refusal) else found
    cls = PodClass(
        demand=requests.readable_demand(pod), request=known.request, wishes=known.wishes, mode=mode_of(known)
    )
    return msgspec.structs.replace(
        _record(pod, cls, settings),
        node=intern(pod.spec.node_name),
        is_reservation=is_reservation(pod, settings),
        held=_held(pod),
        has_legacy_slice=is_ours(pod, settings) and bool(constraints.legacy_slice(pod)),
        started_s=max(0, (rfc3339.parse_ns(pod.status.start_time or "") or 0) // _S),
    )


def _waiting(pod: Pod, settings: Settings, filters: Filters) -> PodRecord:
    try:
        demand, problem = requests.demand(pod), ""
    except requests.MalformedDemand as error:
        demand, problem = Demand(), str(error)
    own = recorded(pod)
    found = own or unrecorded(pod)
    if isinstance(found, Refusal):
        problem = found.message
        found = _NOTHING
    request = found.request
    if (no_room := room.cramped(pod.metadata.annotations, found)) is not None:
        problem = no_room.message
    required = enforcement.is_required(pod.metadata.annotations)
    if isinstance(required, Refusal):
        problem = told(required)
    enforced = enforcement.needed(found.wishes) if required or settings.require_enforcement else ()
    hand_over = device_env.hand_over(pod, request)
    problem = problem or device_env.taken_back(pod, request)
    cls = PodClass(
        demand=demand,
        request=request,
        constraints=_shared_constraints(pod, found.cards, enforced, filters),
        by_config_map=Source.CONFIG_MAP in hand_over,
        strategy=found.strategy,
        uuids=found.cards.uuids,
        not_uuids=found.cards.not_uuids,
        alternatives=found.alternatives,
        wishes=found.wishes,
        mode=mode_of(found),
        places=tuple(msgspec.structs.replace(place, unit=0) for place in found.places),
    )
    job, job_name = job_owners.job_of(pod.metadata.owner_references)
    came_by_the_door = own is not None or not vocabulary.is_spoken(pod)
    return msgspec.structs.replace(
        _record(pod, cls, settings),
        gated=bool(pod.spec.scheduling_gates),
        labels=pod.metadata.labels or {},
        job=job,
        job_name=job_name,
        recorded=own if isinstance(own, Translation) else None,
        blocker=_blocker(
            pod,
            cls,
            filters,
            problem=problem,
            admitted=came_by_the_door and Source.NONE not in hand_over,
            are_grouped=settings.are_grouped,
        ),
    )


def _record(pod: Pod, cls: PodClass, settings: Settings) -> PodRecord:
    meta = pod.metadata
    labels = meta.labels or {}
    counts_for_us = is_ours(pod, settings) and not is_reservation(pod, settings)
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
        task_priority=integer(labels.get(names.TASK_PRIORITY_LABEL, "")),
        pod_group=intern((meta.annotations or {}).get(names.POD_GROUP_NAME, "")),
        subgroup=_subgroup(meta),
        controller=_controller(meta),
        deleting=meta.deletion_timestamp is not None,
        claims=volumes.claims_of(pod) if pod.spec.volumes else (),
        keeps_off=selectors.anti_terms(pod) if pod.spec.affinity else (),
        grace_s=30 if (grace_s := pod.spec.termination_grace_period_seconds) is None else grace_s,
        queue=queues.queue_of(labels) if counts_for_us else "",
        is_preemptible=queues.is_preemptible(labels.get(names.PREEMPTIBILITY_LABEL)),
        is_foreign=not (counts_for_us or is_reservation(pod, settings) or _is_scaling(pod)),
    )


def _is_scaling(pod: Pod) -> bool:
    return pod.spec.scheduler_name == names.SCALING_SCHEDULER_NAME


def _shared_constraints(pod: Pod, cards: Cards, enforced: tuple[str, ...], filters: Filters) -> Constraints:
    found = constraints.constraints(pod, cards, enforced, filters)
    return ANYWHERE if found == ANYWHERE else found


def _blocker(
    pod: Pod, cls: PodClass, filters: Filters, *, problem: str, admitted: bool, are_grouped: bool
) -> Verdict | None:
    if problem:
        return Verdict(code=Code.INVALID_REQUEST, detail=problem)
    if constraint := constraints.unsupported(pod) or constraints.excessive(cls, filters):
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=constraint)
    return without_group(pod, are_grouped=are_grouped) or (None if admitted else Verdict(code=Code.NOT_ADMITTED))


def without_group(pod: Pod, *, are_grouped: bool = False) -> Verdict | None:
    """Why a pod that names no PodGroup is not started alone, by what it says itself; None where it may be.

    ``are_grouped``: Moorage groups pods of owners, and of gangs in the words of other schedulers.
    """
    if (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME):
        return None
    if kind := gang_kinds.gang_kind(pod):
        is_coming = are_grouped and pod.metadata.owner_references
        return Verdict(code=Code.NOT_GROUPED if is_coming else Code.NO_POD_GROUP, detail=kind)
    if asked := gang_kinds.asked_elsewhere(pod):
        if are_grouped and gang_kinds.is_translated(pod):
            return Verdict(code=Code.NOT_GROUPED, detail=f"gang ({asked})")
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=gang_kinds.not_carried_out(asked))
    return None


def _held(pod: Pod) -> tuple[Held, ...]:
    """A bound pod's parts of devices: its grant, else the groups that its labels name."""
    given = grant.read(pod.metadata.annotations)
    if given is not None:
        return tuple(Held(d.group, d.nano, d.reservation, d.uuid, d.resource, d.compute_percent) for d in given.devices)
    return tuple(Held(group, None) for group in grant.labelled_groups(pod.metadata.labels))


def node_record(node: Node) -> NodeRecord:
    """Read a node; a resource that can't be read counts as none."""
    labels = node.metadata.labels or {}
    annotations = node.metadata.annotations or {}
    allocatable = node.status.allocatable or {}
    smallest, largest = cards_mib(labels, annotations)
    is_mig = _is_mig(labels, allocatable)
    is_single = is_mig and labels.get(names.NODE_MIG_STRATEGY) == _MIG_SINGLE
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
        is_mig=is_mig,
        single_profile=slices.single_profile(labels.get(names.NODE_GPU_PRODUCT, "")) if is_single else "",
        is_multiplied=bool(multiplied(labels, annotations, offered_gpus(node))),
        enforces=enforcement.listed(annotations.get(names.NODE_ENFORCES)).known,
        uuids=_uuids(annotations.get(names.NODE_UUIDS, "")),
        devices=offered_gpus(node),
    )


def _uuids(text: str) -> tuple[str, ...]:
    """What an administrator lists; nothing, if there is anything else in it than UUIDs as NVML writes them."""
    listed = tuple(part.strip() for part in text.split(",")) if text else ()
    return listed if all(map(_UUID.fullmatch, listed)) and len({*listed}) == len(listed) else ()


def offered_gpus(node: Node) -> int:
    """How many GPUs the device plugin has registered. Unhealthy ones stand in the capacity only."""
    there = (_amount(names.GPU_RESOURCE, has.get(names.GPU_RESOURCE, 0)) for has in _amounts_of(node))
    return min(max(there, default=0), _MOST_GPUS)


def _amounts_of(node: Node) -> Iterator[Mapping[str, str | int | float]]:
    yield from (has for has in (node.status.capacity, node.status.allocatable) if has is not None)


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


def _is_mig(labels: dict[str, str], allocatable: dict[str, str | int | float]) -> bool:
    """Whether the node has MIG slices, also as its ``nvidia.com/gpu``: no card is shared there (contract 4.12)."""
    if _MIG_ENABLED_LABEL in labels:
        return labels[_MIG_ENABLED_LABEL].lower() == "true"
    sliced = any(k.startswith(names.MIG_RESOURCE_PREFIX) and _amount(k, v) > 0 for k, v in allocatable.items())
    return sliced or labels.get(names.NODE_MIG_STRATEGY) == _MIG_SINGLE


def pod_group_record(group: PodGroup) -> PodGroupRecord:
    """Read a PodGroup. Without ``minMember`` the minimums of its subgroups hold, or one pod if there are none."""
    spec = group.spec
    tree, contradiction = _tree(spec)
    default = tree.fewest if spec.sub_groups else 1
    meta = group.metadata
    stale_ns, unread_stale = _stale(spec.staleness_grace_period)
    minimum = max(spec.min_member if spec.min_member is not None else default, 0)
    return PodGroupRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        rv=meta.resource_version,
        minimum=minimum,
        created=meta.creation_timestamp or "",
        tree=tree,
        contradiction=contradiction,
        unsupported=_unsupported_in(group, minimum),
        stale_ns=stale_ns,
        unread_stale=unread_stale,
        delay_ns=_delay_ns(spec.preemption_delay),
        stale_since=(meta.annotations or {}).get(names.STALE_SINCE, "")[: rfc3339.LONGEST + 1],
        ignored=ignored_in(group),
        controller=_controller(meta),
        planned=written_plan.members((meta.annotations or {}).get(names.PLAN)),
        queue=intern(spec.queue or names.DEFAULT_QUEUE),
        is_preemptible=queues.is_preemptible(spec.preemptibility),
    )


def _tree(spec: PodGroupSpec) -> tuple[MinimumTree, Contradiction | None]:
    """The minimums; as in KAI, pods are counted in leaves, and ``minMember`` of a subgroup above others is not read."""
    if spec.min_member is not None and spec.min_sub_group is not None:
        return MinimumTree(), Contradiction(Code.GROUP_TWO_MINIMUMS, "")
    parts = [Part(s.name, s.parent or "", s.min_member, s.min_sub_group) for s in spec.sub_groups or ()]
    found = minimum_tree(parts, spec.min_sub_group)
    return (MinimumTree(), found) if isinstance(found, Contradiction) else (found, None)


def ignored_in(group: PodGroup) -> str:
    """Name what a PodGroup prefers and nobody looks at yet; "" if nothing."""
    asked = [group.spec.topology_constraint, *(s.topology_constraint for s in group.spec.sub_groups or ())]
    prefers = any(constraint and constraint.preferred_topology_level for constraint in asked)
    return "topologyConstraint.preferredTopologyLevel" if prefers else ""


def _unsupported_in(group: PodGroup, minimum: int) -> str:
    spec = group.spec
    constrained = [spec.topology_constraint, *(s.topology_constraint for s in spec.sub_groups or ())]
    found = {
        "topologyConstraint.requiredTopologyLevel": any(c and c.required_topology_level for c in constrained),
    }
    annotations = group.metadata.annotations
    # Where subgroups are counted, KAI's annotation says how many of them.
    if gang_kinds.asks_more_than(annotations, max(minimum, spec.min_sub_group or 0)):
        found[f"annotation {names.BATCH_MIN_MEMBER} above minMember"] = True
    found |= dict.fromkeys(gang_kinds.kais_structure(annotations), True)
    return ", ".join(name for name, is_there in found.items() if is_there)


def _stale(text: str | None) -> tuple[int | None, str | None]:
    """``stalenessGracePeriod`` (kai-contract 3.2), or what stands there and can't be read: as if it were not said."""
    if text is None:
        return None, None
    try:
        return goduration.parse_ns(text), None
    except goduration.MalformedDuration:
        return None, shown(text)


def _delay_ns(text: str | None) -> int:
    """``preemptionDelay``; what can't be read, or is below zero, delays nothing. The webhook refuses what can't be."""
    try:
        return max(0, goduration.parse_ns(text)) if text is not None else 0
    except goduration.MalformedDuration:
        return 0


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
