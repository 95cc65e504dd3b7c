"""Pods, and BindRequests for them, as records: what runs, waits or holds a device for others.

Nothing behind it sees a wire object. What can't be read of a pod never stops the loop: it becomes the reason why that
pod waits (``blocker``).

A container with a share whose env reads nothing would see no device, or every device of its node: such a pod is never
bound (docs/design/protocol.md, Hand-over to the container). How long a pod runs at most is said by its deadline, which
its kubelet enforces, and by the pod itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from sys import intern
from typing import Final, TypeAlias

import msgspec

from gpu import bind_request, bound_pod, grant, limits, reservation
from gpu.bind_request import Foreign
from gpu.grant import Charged, has_ended
from gpu.limits import Requirement
from gpu.node_resources import integer
from gpu.request import NO_GPU, ContainerKind, ContainerRef, GpuRequest
from gpu.translate import registry
from gpu.translate.asked import PLAIN, asked_when_bound, mode_of, recorded, unrecorded
from gpu.translation import Cards, Refusal, Translation, told
from scheduler.core.convert import (
    bounds,
    config_maps,
    constraints,
    numa,
    owners,
    pod_groups,
    resource_claims,
    selectors,
    volumes,
)
from scheduler.core.convert import demand as requests
from scheduler.core.convert.owners import controller_of
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.numa import NumaAsk
from scheduler.core.model.pod_class import ANYWHERE, Constraints, Demand, PodClass
from scheduler.core.model.records import BindRequestRecord, Held, PodRecord, SeenPod, SucceededMember
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from wire import go, names, rfc3339
from wire.core import NEVER_PREEMPTS, Container, EnvVar, ObjectMeta, Pod
from wire.crds.bindrequest import BindRequest
from wire.units import SECOND_NS

#: Kubernetes' own bound. A time beyond the year 9999 could not be shown.
_LONGEST_S: Final = (1 << 31) - 1


def deadline_s(pod: Pod) -> int:
    """``activeDeadlineSeconds``, counted from the pod's start; 0 without one, and for one that no API server stores."""
    seconds = pod.spec.active_deadline_seconds or 0
    return seconds if 0 < seconds <= _LONGEST_S else 0


def max_runtime_s(pod: Pod) -> int:
    """What the annotation says, in seconds, rounded up; 0 if it says nothing that can be read and is above zero."""
    written = (pod.metadata.annotations or {}).get(names.MAX_RUNTIME)
    if written is None:
        return 0
    try:
        return max(0, -(-go.parse_ns(written) // SECOND_NS))
    except go.MalformedDuration:
        return 0


class Source:
    """How a container reads which devices it was given."""

    ANNOTATION = "annotation"
    CONFIG_MAP = "config-map"
    NONE = "none"


def env_sources(pod: Pod, request: GpuRequest) -> set[str]:
    """How the containers with a share read their devices: the ways seen; empty when there are no shares."""
    if not request.is_shared:
        return set()
    return {_source(pod, container) for container in request.devices()}


def taken_back(pod: Pod, request: GpuRequest) -> str:
    """Say which container reads a ConfigMap though its ask is gone; "" if none does.

    It would wait for ever for one that nobody writes, or see the devices of an attempt that failed.
    """
    if names.SHARED_GPU_CONFIGMAP not in (pod.metadata.annotations or {}):
        return ""
    shared = {container.key for container in request.devices()}
    listed = ((ContainerKind.INIT, pod.spec.init_containers or ()), (ContainerKind.REGULAR, pod.spec.containers))
    for kind, containers in listed:
        for index, container in enumerate(containers):
            ref = ContainerRef(kind, index)
            if ref.key not in shared and _source(pod, ref) == Source.CONFIG_MAP:
                return f"container {container.name} shares no GPU any more, but reads which: create the pod again"
    return ""


def _source(pod: Pod, ref: ContainerRef) -> str:
    variable = _variable(_container(pod, ref))
    source = variable.value_from if variable else None
    if source is None:
        return Source.NONE
    if source.field_ref is not None:
        wanted = f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}{ref.key}']"
        return Source.ANNOTATION if source.field_ref.field_path == wanted else Source.NONE
    prefix = (pod.metadata.annotations or {}).get(names.SHARED_GPU_CONFIGMAP, "")
    by_map = source.config_map_key_ref
    return Source.CONFIG_MAP if by_map and prefix and by_map.name.startswith(prefix) else Source.NONE


def _container(pod: Pod, ref: ContainerRef) -> Container | None:
    containers = pod.spec.init_containers or [] if ref.kind is ContainerKind.INIT else pod.spec.containers
    return containers[ref.index] if ref.index < len(containers) else None


def _variable(container: Container | None) -> EnvVar | None:
    """The entry that counts: kubelet lets the last one of a name win."""
    found = [v for v in (container.env if container else None) or () if v.name == names.ENV_VISIBLE_DEVICES]
    return found[-1] if found else None


def blocker(
    pod: Pod, cls: PodClass, filters: Filters, *, problem: str, admitted: bool, workloads_are_grouped: bool
) -> Verdict | None:
    """Why a pod is not placed; None if it may be.

    ``problem``: what of its asks can't be read. ``admitted``: it came by the webhooks, and will see its devices.
    """
    if problem:
        return Verdict(code=Code.INVALID_REQUEST, detail=problem)
    if constraint := constraints.unsupported(pod) or bounds.excess(pod) or constraints.excessive(cls, filters):
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=constraint)
    return without_group(pod, workloads_are_grouped=workloads_are_grouped) or (
        None if admitted else Verdict(code=Code.NOT_ADMITTED)
    )


def without_group(pod: Pod, *, workloads_are_grouped: bool = False) -> Verdict | None:
    """Why a pod that names no PodGroup is not started alone, by what it says itself; None where it may be.

    ``workloads_are_grouped``: Moorage groups pods of owners, and of gangs in the words of other schedulers.
    """
    if (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME):
        return None
    if kind := owners.gang_kind(pod):
        is_coming = workloads_are_grouped and pod.metadata.owner_references and not owners.is_ungrouped(pod.metadata)
        return Verdict(code=Code.NOT_GROUPED if is_coming else Code.NO_POD_GROUP, detail=kind)
    if asked := owners.asked_elsewhere(pod):
        if workloads_are_grouped and owners.is_translated(pod):
            return Verdict(code=Code.NOT_GROUPED, detail=f"gang ({asked})")
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=owners.not_carried_out(asked))
    if workloads_are_grouped and (kind := owners.unknown_owner_of(pod.metadata)):
        return Verdict(code=Code.NOT_GROUPED, detail=kind)
    return None


def bind_request_record(request: BindRequest) -> BindRequestRecord | None:
    """Read a hand-over; None if it is not one that our binder would carry out."""
    ordered = bind_request.read(request)
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
        charged=ordered.handover.charged,
    )


_NOTHING = Translation(dialect=PLAIN, request=NO_GPU)
#: The most characters of a reason: a condition holds no more.
_LONGEST_PROBLEM: Final = 1_000

#: Makes the record of a pod.
Read: TypeAlias = Callable[[Pod, Settings, Filters], PodRecord | None]


def is_ours(pod: Pod, settings: Settings) -> bool:
    """Whether this scheduler places ``pod``."""
    return pod.spec.scheduler_name == settings.scheduler_name


def is_reservation(pod: Pod, settings: Settings) -> bool:
    """Whether ``pod`` holds a device for others."""
    return reservation.is_reservation(pod, settings.reservation_namespace, app=settings.reservation_app)


def pod_record(pod: Pod, settings: Settings, filters: Filters = FILTERS) -> PodRecord | None:
    """Read a pod; None if it doesn't matter: ended, or neither bound nor ours."""
    if has_ended(pod.status):
        return None
    if pod.spec.node_name:
        return _bound(pod, settings, filters)
    if not is_ours(pod, settings) or pod.status.phase in names.ENDED_PHASES:
        return None
    return _waiting(pod, settings, filters)


def seen_pod(pod: Pod, settings: Settings, filters: Filters = FILTERS, *, read: Read = pod_record) -> SeenPod:
    """Read a pod: whether it runs, has ended, or holds a device for others. ``read``: what makes its record."""
    return SeenPod(
        uid=pod.metadata.uid,
        rv=pod.metadata.resource_version,
        has_ended=has_ended(pod.status),
        record=read(pod, settings, filters),
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
        pod_group=bounds.name(group),
        subgroup=_subgroup(meta),
        controller=controller_of(meta),
        ended_s=_ended_s(pod),
    )


def _ended_s(pod: Pod) -> int:
    """When the last of its containers ended (seconds of the wall clock); 0: not known."""
    states = (each.state for each in pod.status.container_statuses or () if each.state is not None)
    ended = (state.terminated.finished_at or "" for state in states if state.terminated is not None)
    return max([0, *((rfc3339.parse_ns(each) or 0) // SECOND_NS for each in ended)])


def _subgroup(meta: ObjectMeta) -> str:
    return intern((meta.labels or {}).get(names.SUBGROUP_LABEL, ""))


def _bound(pod: Pod, settings: Settings, filters: Filters) -> PodRecord:
    found = asked_when_bound(pod)
    known = _NOTHING if isinstance(found, Refusal) else found
    demand = resource_claims.without_share(requests.readable_demand(pod), known.request)
    cls = PodClass(
        demand=resource_claims.by_claim(demand, pod),
        request=known.request,
        wishes=known.wishes,
        driver_caps=known.driver_caps,
        by_agents=limits.serving(known) if limits.were_given(pod.metadata.annotations or {}) else (),
        mode=mode_of(known),
        deadline_s=deadline_s(pod),
        max_runtime_s=max_runtime_s(pod),
    )
    share = bound_pod.read_claimed(pod)
    cls = resource_claims.claimed(cls, share)
    return msgspec.structs.replace(
        _record(pod, cls, settings),
        node=intern(pod.spec.node_name),
        is_reservation=is_reservation(pod, settings),
        held=_held(pod),
        claimed=share,
        has_legacy_slice=is_ours(pod, settings) and bool(constraints.legacy_slice(pod)),
        moves_as=_moves_as(pod, settings, filters) if settings.preemption else None,
        started_s=started_s(pod),
    )


def started_s(pod: Pod) -> int:
    """When its node took a pod up (seconds of the wall clock); 0: not known."""
    return max(0, (rfc3339.parse_ns(pod.status.start_time or "") or 0) // SECOND_NS)


def _moves_as(pod: Pod, settings: Settings, filters: Filters) -> PodClass | None:
    """What the successor of a bound pod asks; None if it has none, or nobody can tell where it could be.

    A pod without a controller would be lost. Volumes may tie a pod to its node, and its own anti-affinity keeps it off
    others; who asks not to be disrupted is left alone.
    """
    if not is_ours(pod, settings) or is_reservation(pod, settings) or not controller_of(pod.metadata):
        return None
    if pod.spec.resource_claims or resource_claims.claim_name(pod) or (pod.spec.volumes and volumes.claims_of(pod)):
        return None
    if (pod.metadata.annotations or {}).get(names.DO_NOT_DISRUPT) == "true":
        return None
    asks = _waiting(pod, settings, filters)
    return None if asks.blocker is not None or asks.keeps_off or asks.gated else asks.cls


def _waiting(pod: Pod, settings: Settings, filters: Filters) -> PodRecord:
    try:
        asked, problem = requests.demand(pod), ""
    except requests.MalformedDemand as error:
        asked, problem = Demand(), str(error)
    own = recorded(pod)
    found = own or unrecorded(pod)
    if isinstance(found, Refusal):
        problem = found.message
        found = _NOTHING
    request = found.request
    demand = resource_claims.without_share(asked, request)
    if (no_room := bound_pod.cramped(pod.metadata.annotations, found)) is not None:
        problem = no_room.message
    if isinstance(required := limits.requirement(pod.metadata.annotations), Refusal):
        problem = told(required)
    hand_over = env_sources(pod, request)
    problem = problem or taken_back(pod, request)
    cls = _waiting_class(
        pod, found, resource_claims.by_claim(demand, pod), hand_over, settings=settings, filters=filters
    )
    if too_much := bounds.excess_of_class(cls):
        # Such a pod waits for another reason than room: none of its constraints is kept.
        own, problem, cls = None, problem or too_much, PodClass(demand=bounds.first_resources(cls.demand))
    share = bound_pod.read_claimed(pod)
    asks = resource_claims.for_claims(pod, cls) if asked.gpus or asked.extended else ()
    cls = resource_claims.claimed(cls, share)
    job, job_name = owners.job_of(pod.metadata)
    came_by_the_door = own is not None or bool(too_much) or not registry.is_spoken(pod)
    kept = msgspec.structs.replace(cls, demand=bounds.first_resources(cls.demand))
    return msgspec.structs.replace(
        _record(pod, kept if kept.demand is not cls.demand else cls, settings),
        gated=bool(pod.spec.scheduling_gates),
        job=job,
        job_name=job_name,
        is_ungrouped=owners.is_ungrouped(pod.metadata),
        plain_owner=owners.plain_owner_of(pod.metadata),
        stated=owners.stated(pod.metadata),
        recorded=own if isinstance(own, Translation) and share is None else None,
        extended_asks=asks[: bounds.MOST_RESOURCES],
        extended_claim=resource_claims.claim_name(pod),
        claimed=share,
        config_maps=config_maps.required(pod),
        blocker=blocker(
            pod,
            cls,
            filters,
            problem=problem[:_LONGEST_PROBLEM],
            admitted=came_by_the_door and Source.NONE not in hand_over,
            workloads_are_grouped=settings.workloads_are_grouped,
        ),
    )


def _waiting_class(
    pod: Pod, found: Translation, demand: Demand, hand_over: Collection[str], *, settings: Settings, filters: Filters
) -> PodClass:
    by_agents = _by_agents(found, hand_over)
    enforced = _enforced(pod, found, settings, by_agents=by_agents)
    return PodClass(
        demand=demand,
        request=found.request,
        constraints=_shared_constraints(
            pod,
            found.cards,
            enforced,
            filters,
            aligned=_aligned(pod, settings),
            distinct_gpus=settings.distinct_gpus and demand.gpus > 1,
        ),
        by_config_map=Source.CONFIG_MAP in hand_over,
        strategy=found.strategy,
        uuids=found.cards.uuids,
        not_uuids=found.cards.not_uuids,
        alternatives=found.alternatives,
        wishes=found.wishes,
        driver_caps=found.driver_caps,
        by_agents=by_agents,
        mode=mode_of(found),
        places=tuple(msgspec.structs.replace(place, unit=0) for place in found.places),
        deadline_s=deadline_s(pod),
        max_runtime_s=max_runtime_s(pod),
        rules=constraints.pod_rules(pod),
        prefers=constraints.pod_preferences(pod, settings.weights),
    )


def _record(pod: Pod, cls: PodClass, settings: Settings) -> PodRecord:
    meta = pod.metadata
    labels = meta.labels or {}
    counts_for_us = is_ours(pod, settings) and not is_reservation(pod, settings)
    charged = grant.read_charged(meta.annotations) if counts_for_us and pod.spec.node_name else None
    pod_group = bounds.name((meta.annotations or {}).get(names.POD_GROUP_NAME, ""))
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
        may_evict=pod.spec.preemption_policy != NEVER_PREEMPTS,
        task_priority=integer(labels.get(names.TASK_PRIORITY_LABEL, "")),
        pod_group=pod_group,
        subgroup=_subgroup(meta),
        controller=controller_of(meta),
        deleting=meta.deletion_timestamp is not None,
        claims=volumes.claims_of(pod) if pod.spec.volumes else (),
        resource_claims=constraints.claim_uses(pod),
        labels=bounds.kept_labels(labels, settings.pool),
        are_labels_cut=bounds.are_too_many(labels),
        ports=constraints.host_ports(pod),
        disks=constraints.inline_disks(pod) if pod.spec.volumes else (),
        inline_volumes=volumes.attached_by_pod(pod) if pod.spec.volumes else (),
        keeps_off=selectors.anti_terms(pod) if pod.spec.affinity else (),
        draws=constraints.drawing_terms(pod, settings.weights) if pod.spec.affinity else (),
        grace_s=30 if (grace_s := pod.spec.termination_grace_period_seconds) is None else grace_s,
        charged=charged,
        queue=_queue(labels, charged, is_of_group=bool(pod_group and not pod.spec.node_name)) if counts_for_us else "",
        is_preemptible=pod_groups.is_preemptible(labels.get(names.PREEMPTIBILITY_LABEL))
        if charged is None
        else charged.is_preemptible,
        aligned=_aligned(pod, settings),
        is_foreign=not (counts_for_us or is_reservation(pod, settings) or _is_scaling(pod)),
    )


def _queue(labels: Mapping[str, str], charged: Charged | None, *, is_of_group: bool) -> str:
    return pod_groups.queue_of(labels, is_of_group=is_of_group) if charged is None else charged.queue


def _aligned(pod: Pod, settings: Settings) -> NumaAsk | None:
    return numa.numa_ask(pod) if settings.numa_alignment else None


def _is_scaling(pod: Pod) -> bool:
    return pod.spec.scheduler_name == names.SCALING_SCHEDULER_NAME


def _by_agents(found: Translation, hand_over: Collection[str]) -> tuple[str, ...]:
    """Which back ends of nodes' agents can limit the pod: what they give containers is named beside devices."""
    return () if Source.CONFIG_MAP in hand_over else limits.serving(found)


def _enforced(pod: Pod, found: Translation, settings: Settings, *, by_agents: Collection[str]) -> tuple[str, ...]:
    """What the pod's node has to enforce: nothing where nobody insists."""
    required = limits.requirement(pod.metadata.annotations)
    if required is Requirement.NONE and not settings.require_enforcement:
        return ()
    is_hard = required is Requirement.HARD
    return limits.needed(found.wishes, by_driver=found.driver_caps, is_hard=is_hard, by_agents=by_agents)


def _shared_constraints(
    pod: Pod,
    cards: Cards,
    enforced: tuple[str, ...],
    filters: Filters,
    *,
    aligned: NumaAsk | None,
    distinct_gpus: bool,
) -> Constraints:
    found = constraints.constraints(pod, cards, enforced, filters)
    if aligned is not None or distinct_gpus:
        return msgspec.structs.replace(found, aligned=aligned, distinct_gpus=distinct_gpus)
    return ANYWHERE if found == ANYWHERE else found


def _held(pod: Pod) -> tuple[Held, ...]:
    """A bound pod's parts of devices: its grant, else the groups that its labels name."""
    given = grant.read(pod.metadata.annotations)
    if given is not None:
        return tuple(Held(d.group, d.nano, d.reservation, d.uuid, d.resource, d.compute_percent) for d in given.devices)
    return tuple(Held(group, None) for group in grant.labelled_groups(pod.metadata.labels))
