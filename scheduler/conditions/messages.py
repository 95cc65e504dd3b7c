"""The one place where verdicts and evictions become text, in KAI's words where KAI has some.

Sources: kai-contract 4.7, 4.8, 4.10 and errata 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.quota import NOTHING, UNLIMITED, Resources
from scheduler.core.model.verdict import (
    Code,
    NodeReason,
    QueueCause,
    ReserveCause,
    SubgroupShort,
    TopologyCause,
    Verdict,
)
from scheduler.core.report.node_view import Closed
from wire import names
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS


class Told(msgspec.Struct, frozen=True, gc=False):
    """What a pod's PodScheduled condition and event say."""

    reason: str
    message: str


_RESOURCE_WORDS: Final = {
    names.GPU_RESOURCE: "GPUs",
    "gpu-share": "GPUs",
    "gpu-memory": "GPU memory",
    names.CPU_RESOURCE: "CPU cores",
    names.MEMORY_RESOURCE: "memory",
    names.EPHEMERAL_STORAGE_RESOURCE: "ephemeral-storage",
}

#: A verdict's reason that excludes a node -> its words; filters bring their own.
KIND_WORDS: Final = {
    **FILTERS.words(),
    "pods": "node(s) pod number exceeded",
    "no-gpu-memory-label": "node is not a gpu node or the gpu memory count on the node was not synced yet",
    "excluded": "node(s) are excluded for a while after a failed attempt",
    "probation": "node(s) did not start a GPU reservation in time and are retried with one pod at a time",
    "contended": "node(s) have GPUs in use by pods that lost their reservation (see events GPULost)",
    "silent": "node(s) have a shared GPU whose reservation pod has not reported its device",
    "ill": "node(s) have a shared GPU that its device plugin reports as unhealthy",
    "mode": "node(s) have room only on shared GPUs whose pods use another mode than the Pod",
    "compute": "node(s) have room only on shared GPUs with less compute left than the Pod requests",
    "pinned": "node(s) have no known GPU with an index or UUID that the Pod accepts",
    "pinned-full": "node(s) have too little left on the shared GPU that the Pod names by index or UUID",
    "pinned-whole": "node(s) have the GPU that the Pod names by index or UUID in use as a whole GPU, or unhealthy",
    "pinned-room": "node(s) may have the GPU that the Pod names by index or UUID, but no room to open GPUs to check",
    "exclusion": "node(s) have room only on shared GPUs that the Pod excludes, and exclusions open no further GPU",
    "multiplied": "node(s) offer each GPU several times (time-slicing, MPS, HAMi's plugin), so none can be shared",
    "volumes": "node(s) exceed max volume count",
    "volume-binding": "node(s) didn't find available persistent volumes to bind",
    "volume-space": "node(s) did not have enough free storage",
    "numa-free": "node(s) have too few free devices and CPUs on the same NUMA nodes",
    "claim-devices": "node(s) cannot allocate all claims",
    "claim-kept": "node(s) have devices free only when programs of Pods that were deleted by force must have ended",
    "claim-pool": "node(s) have pools of devices that are incomplete or invalid",
    "claim-selector": "node(s) where a selector or a field of a ResourceClaim can't be evaluated",
    "claim-search": "node(s) where the search for devices ended before all ways were tried",
    "claims-only": "node(s) give GPUs by ResourceClaims only, so no reservation can hold one to share",
    "claims-whole": "node(s) give GPUs by ResourceClaims, and their driver lets no two claims share one",
    "mig": "node(s) have MIG devices, which cannot be shared in parts",
    "reserve": "node(s) are kept for {owner}, which has waited since {since}",
}

_CLOSED_WORDS: Final = {
    Closed.CONTENDED: "it is in use by pods that lost their reservation (see events GPULost)",
    Closed.ILL: "its device plugin reports it as unhealthy",
    Closed.NO_BOOK: "its reservation has no readable book: KAI created it and it is not adopted yet, or it is foreign",
    Closed.LEAVING: "its reservation is being deleted",
    Closed.LOST: "its reservation is gone or has ended, and is not re-created yet",
    Closed.DISPUTED: "several reservations claim it",
    Closed.NO_GROUP: "its reservation names no GPU group",
}

#: What keeps a pod waiting because of a claim, in kube-scheduler's words.
_PLAIN_WORDS: Final = {
    Code.WAITS_FOR_TURN: (
        "The gang needs {required} pods to start and waits for its turn: "
        "large gangs that found no room were tried just before"
    ),
    Code.NOT_GROUPED: (
        "The pod belongs to {a} and names no PodGroup yet: moorage-podgrouper makes it. If that takes longer, "
        "events PodGrouperWarning of the pod tell why"
    ),
    Code.OWNER_NOT_SEEN: (
        "the scheduler has not received {} yet, which owns the pod and may require several pods to start together"
    ),
    Code.NOT_READ: (
        "the scheduler can't read {} and this pod depends on them: it needs the rights list and watch on them; its log "
        "has the error"
    ),
    Code.GROUP_NAME_TWICE: "{of}: several subgroups have the name {}; allowed: each name once",
    Code.GROUP_PARENT_NOT_FOUND: "{of}: the parent of subgroup {} does not exist; allowed: the name of another",
    Code.GROUP_CYCLE: "{of}: the parents of subgroup {} form a cycle; allowed: a parent that is not below it",
    Code.GROUP_TWO_MINIMUMS: "{of}: {about} has both minMember and minSubGroup; allowed: one of them",
    Code.GROUP_NO_CHILDREN: "{of}: subgroup {} has minSubGroup and no subgroups below it; allowed: minMember",
    Code.TOPOLOGY_NOT_FOUND: "topology {} doesn't exist: create it, or name another in topologyConstraint.topology",
    Code.CLAIM_NOT_FOUND: 'persistentvolumeclaim "{}" not found',
    Code.CLAIM_NOT_MADE: 'waiting for ephemeral volume controller to create the persistentvolumeclaim "{}"',
    Code.CLAIM_NOT_OWN: "PVC {} was not created for this pod (pod is not owner)",
    Code.CLAIM_LOST: 'persistentvolumeclaim "{}" bound to non-existent persistentvolume',
    Code.CLAIM_LEAVING: 'persistentvolumeclaim "{}" is being deleted',
    Code.CLAIM_UNBOUND: 'pod has unbound immediate PersistentVolumeClaims: "{}"',
    Code.CLAIM_NOT_READABLE: (
        'persistentvolumeclaim "{}" can\'t be read: allowed are a size that is a quantity, and a selector with known '
        "operators and at most 100 expressions and values"
    ),
    Code.CLAIM_IN_USE: (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another "
        'pod: "{}"'
    ),
    Code.CONFIG_MAP_NOT_FOUND: "Missing required configmaps: [{}]",
    Code.RESOURCE_CLAIM_NOT_FOUND: 'resourceclaim "{}" not found',
    Code.RESOURCE_CLAIM_NOT_MADE: 'waiting for kube-controller-manager to create the resourceclaim for "{}"',
    Code.RESOURCE_CLAIM_NOT_OWN: "resourceclaim {} was not created for this pod (pod is not owner)",
    Code.RESOURCE_CLAIM_OF_GROUP: (
        "resourceclaim {} was not created for this pod (its owner is another PodGroup of scheduling.k8s.io)"
    ),
    Code.RESOURCE_CLAIM_LEAVING: 'resourceclaim "{}" is being deleted',
    Code.RESOURCE_CLAIM_IN_USE: 'resourceclaim in use: no more than 256 pods may use "{}"',
    Code.RESOURCE_CLAIM_FAILED: 'a device of resourceclaim "{}" failed, and other pods use the claim',
    Code.RESOURCE_CLAIM_GIVEN_BACK: "its resourceclaims are being released, and will be allocated again",
    Code.DEVICE_CLASS_NOT_FOUND: "device class {} does not exist",
    Code.VOLUME_NOT_FOUND: 'node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s): "{}"',
}

#: What keeps a pod waiting because of its queue; the first two in KAI's words.
_QUEUE_WORDS: Final = {
    Code.OVER_LIMIT: (
        "{at} quota has reached the allowable limit of {word}. Limit is {most} {unit}, currently {held} {unit} "
        "allocated and workload requested {asked} {unit}"
    ),
    Code.OVER_QUOTA: (
        "Non-preemptible workload is over quota. Workload requested {asked} {unit}, but {at} quota is {most} {unit}, "
        "while {held} {unit} are already allocated for non-preemptible pods. Use a preemptible workload to go over "
        "quota."
    ),
    Code.QUEUE_NOT_FOUND: "Queue {name} does not exist",
    Code.QUEUE_NOT_LEAF: "Queue {name} has queues below it and takes no pods itself: name one of those",
    Code.QUEUE_PARENT_NOT_FOUND: "Queue {name} can't be used: queue {at}, a parent of it, does not exist",
    Code.QUEUE_CYCLE: "Queue {name} can't be used: the parents of queue {at} form a cycle",
    Code.QUEUE_TOO_DEEP: "Queue {name} can't be used: the tree of queues above it has more than {deepest} levels",
    Code.QUEUE_CLOSED: ("Queue {name} can't be used: spec.{field} of queue {at} is {value}; allowed: {allowed}"),
}
#: The same of a queue that there is in another node pool.
_ELSEWHERE_WORDS: Final = {
    Code.QUEUE_NOT_FOUND: "Queue {name} belongs to node pool {pool}; the pod is in {here}",
    Code.QUEUE_PARENT_NOT_FOUND: (
        "Queue {name} can't be used: queue {at}, a parent of it, belongs to node pool {pool}; {name} is in {here}"
    ),
}
_AMOUNTS: Final = "-1 for no limit, or a number from 0 below 2^60 in its smallest unit"
_DURATIONS: Final = "a duration such as 90s or 1h30m"

#: What is said where no device of a node has enough memory left, here and by gpushare's scheduler (A3).
_NO_GPU_MEMORY: Final = "node(s) didn't have enough resources: GPU memory"
_IN_ONE_DEVICE: Final = "Insufficient GPU Memory in one device"

#: Most nodes that a text names.
_MOST_NODES: Final = 8
#: Condition messages longer than this help nobody.
_MAX: Final = 1000


def told(verdict: Verdict, *, reader: str | None = "", of_gpushare: bool = False, filters: Filters = FILTERS) -> Told:
    """Render a verdict. ``of_gpushare``: its pods ask as at Aliyun's gpushare, whose users search for its words.

    ``reader``: the namespace whose people read it: objects of others have no name there. None: all have their names.
    """
    reason = names.REASON_NOT_READY if verdict.code is Code.GANG_NOT_READY else names.REASON_UNSCHEDULABLE
    words = KIND_WORDS if filters is FILTERS else {**KIND_WORDS, **filters.words()}
    message = _message(_without_others(verdict, reader), words)
    if of_gpushare:
        message = message.replace(_NO_GPU_MEMORY, f"{_NO_GPU_MEMORY} ({_IN_ONE_DEVICE})")
    return Told(reason, message[:_MAX])


def names_others(verdict: Verdict) -> bool:
    """Whether what is said of a verdict depends on the namespace of its reader."""
    return verdict.reserve is not None or bool(verdict.kept)


def _without_others(verdict: Verdict, reader: str | None) -> Verdict:
    """The same verdict without names of objects in other namespaces than the reader's."""
    if reader is None or not names_others(verdict):
        return verdict
    reserve = verdict.reserve
    if reserve is not None and not is_of(reserve.owner, reader):
        reserve = msgspec.structs.replace(reserve, owner=f"another group of queue {reserve.queue}")
    kept = tuple(
        each if is_of(each.pod, reader) else msgspec.structs.replace(each, pod="of another namespace")
        for each in verdict.kept
    )
    return msgspec.structs.replace(verdict, reserve=reserve, kept=tuple(dict.fromkeys(kept)))


def is_of(place: str, namespace: str) -> bool:
    """Whether an object, by its namespace and name, is of a namespace."""
    return place.partition("/")[0] == namespace


def with_help(message: str, sentence: str) -> str:
    """Add a sentence about what would help; a message that would grow too long goes without it.

    The text that tools match comes first and is unchanged.
    """
    if not sentence or len(message) + 1 + len(sentence) > _MAX:
        return message
    return f"{message} {sentence}"


def closed_text(why: Closed) -> str:
    """Say why a shared device takes no new tenant."""
    return _CLOSED_WORDS[why]


def unread_staleness_text(value: str, *, grace_s: float) -> str:
    """Say that a PodGroup's own grace time is no duration, and what holds in its place."""
    said = msgspec.json.encode(value).decode()
    return (
        f"spec.stalenessGracePeriod {said} can't be read and counts as not set, so what is left of this gang is "
        f"evicted after {grace_s:g} s below its minimum; allowed: a duration such as 90s or 1h30m, or -1s for never"
    )


def _message(verdict: Verdict, words: Mapping[str, str]) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per code
    if verdict.code in _QUEUE_WORDS:
        return _of_queue(verdict, verdict.queue or QueueCause(at=""))
    if verdict.code in _PLAIN_WORDS:
        about = f"subgroup {verdict.detail}" if verdict.detail else "it"
        return _PLAIN_WORDS[verdict.code].format(
            verdict.detail,
            a=with_article(verdict.detail),
            required=verdict.required,
            of="The PodGroup contradicts itself",
            about=about,
        )
    match verdict.code:
        case Code.NO_NODE_FITS:
            return _no_node(verdict, words)
        case Code.GANG_INCOMPLETE:
            room = f" (room for {verdict.subgroup.present})" if verdict.subgroup is not None else ""
            return f"{_found_for(verdict)} for gang scheduling{room}. {_no_node(verdict, words)}"
        case (
            Code.TOPOLOGY_NOT_SATISFIED
            | Code.TOPOLOGY_SEARCH_CUT
            | Code.TOPOLOGY_LEVEL_NOT_FOUND
            | Code.TOPOLOGY_AMBIGUOUS
        ):
            return _of_topology(verdict.code, verdict.topology or TopologyCause(topology="", level=""))
        case Code.GANG_NOT_READY:
            return _not_ready(verdict)
        case Code.UNSUPPORTED_CONSTRAINT:
            return f"UnsupportedConstraint: {verdict.detail} is not supported yet, so the pod is not scheduled"
        case Code.NO_POD_GROUP:
            return (
                f"The pod belongs to {with_article(verdict.detail)}, whose pods start together, but to no PodGroup: "
                f"create one and name it in annotation {names.POD_GROUP_NAME}"
            )
        case Code.POD_GROUP_NOT_FOUND:
            return f"PodGroup {verdict.detail} was not found (annotation {names.POD_GROUP_NAME})"
        case Code.INVALID_REQUEST:
            return verdict.detail
        case Code.NOT_ADMITTED:
            return (
                "The pod requests a share of a GPU but its container would not see it: it was not changed by the "
                "admission webhook. Create it again while the webhook is running"
            )
        case Code.BACKING_OFF:
            return f"The last attempt failed, trying again soon: {verdict.detail}"
        case Code.WAITING_FOR_DEVICE:
            return f"Waiting for an idle GPU reservation to be removed: {verdict.detail}"
        case Code.WAITS_FOR_VICTIMS:
            return _waits_for_victims(verdict)
        case Code.PARTITIONING_UNDER_WAY:
            return f"MIG slices are being made for it on {verdict.detail}"
        case Code.NO_GPU_CAN_BE_PARTITIONED:
            return (
                f"No GPU can be cut into {verdict.detail} now so that it starts: slices in use are in the way, "
                "GPUs rest after a change, or it can't be on their nodes"
            )
        case Code.WAITS_FOR_RESERVED_NODES:
            return _waits_for_reserve(verdict.reserve or ReserveCause(owner="", since_s=0))
        case _:
            return verdict.detail


def _waits_for_victims(verdict: Verdict) -> str:
    """How many pods have to end before it starts."""
    where = f"node {verdict.detail}" if verdict.detail else "several nodes"
    left = verdict.required - verdict.present
    if not left:
        return f"Pods on {where} were evicted for it. Waiting for {verdict.required} to release their resources"
    return f"Pods on {where} are being evicted for it. Waiting for {left} of {verdict.required} to end"


def _waits_for_reserve(reserve: ReserveCause) -> str:
    """For which nodes a group waits that are kept for it."""
    shown = ", ".join(reserve.nodes[:_MOST_NODES])
    left = len(reserve.nodes) - _MOST_NODES
    nodes = f"{shown} and {left} more" if left > 0 else shown
    since = rfc3339(reserve.since_s * SECOND_NS)
    return (
        f"{reserve.owner} has waited since {since}, so its place is being freed on {nodes}. "
        "It starts when enough of the pods there have ended"
    )


def _found_for(verdict: Verdict) -> str:
    """For how much of a gang there is room."""
    short = verdict.subgroup
    if short is None:
        return f"Resources were found for {verdict.placed} pods while {verdict.required} are required"
    return (
        f"Resources were found for {verdict.placed} pods from all sub-groups while sub-group {short.name} requires "
        f"{short.required} pods"
    )


def _not_ready(verdict: Verdict) -> str:
    """What a gang waits for: pods in all, pods of one subgroup, or subgroups."""
    short = verdict.subgroup
    if short is None:
        return (
            f"Job is not ready for scheduling. Waiting for {verdict.required} pods, currently {verdict.present} "
            f"exist, {verdict.gated} are gated"
        )
    stray = f" A pod names SubGroup {short.stray}, of which the PodGroup counts no pods." * bool(short.stray)
    if short.is_of_subgroups:
        owner = f"SubGroup {short.name}" if short.name else "the PodGroup"
        return (
            f"Job is not ready for scheduling. Waiting for {short.required} complete subgroups of {owner}, currently "
            f"{short.present} are complete.{stray}"
        )
    return (
        f"Job is not ready for scheduling. Waiting for {short.required} pods for SubGroup {short.name}, currently "
        f"{short.present} exist, {short.gated} are gated.{stray}"
    )


#: Word, unit, and how many of the smallest unit make one: by dimension of a queue, as KAI writes them.
_QUOTA_WORDS: Final = {
    "gpu": ("GPUs", "GPUs", 10**9),
    "cpu": ("CPU cores", "cores", 1000),
    "memory": ("memory", "GB", 10**9),
}


def _of_topology(code: Code, cause: TopologyCause) -> str:
    """What keeps a gang from a place, as KAI says it (placement.md, section 5)."""
    if code is Code.TOPOLOGY_LEVEL_NOT_FOUND:
        kind = "required" if cause.is_required else "preferred"
        return f"the topology {cause.topology} doesn't have a level matching the {kind}({cause.level})"
    if code is Code.TOPOLOGY_AMBIGUOUS:
        return (
            f"several Topologies have level {cause.level}, with other levels above it: {cause.topology}. Name one in "
            "annotation kai.scheduler/topology of the workload, or in topologyConstraint.topology"
        )
    subgroup = f", subgroup {cause.subgroup}" if cause.subgroup else ""
    said = (
        f"topology {cause.topology}, requirement {cause.level} couldn't be satisfied for job <{cause.owner}>{subgroup}"
    )
    best = [
        f"node-group {domain.name} can allocate only {domain.pods} of {cause.required} required pods"
        if domain.pods < cause.required
        else f"node-group {domain.name} has room for {cause.required} pods in sum, but they don't fit on its nodes"
        for domain in cause.best
    ]
    cut = ["the search ended before all node-groups were tried"] if code is Code.TOPOLOGY_SEARCH_CUT else []
    return f"{said}: {', '.join([*best, *cut])}" if best or cut else f"{said}: no node has the label of this level"


def _of_queue(verdict: Verdict, cause: QueueCause) -> str:
    """Why a queue takes no more, with the arithmetic (kai-contract 4.10)."""
    word, unit, one = _QUOTA_WORDS.get(cause.resource, ("", "", 1))
    most, held, asked = (decimal(amount, one) for amount in (cause.most, cause.held, cause.asked))
    words = _ELSEWHERE_WORDS if cause.pool else _QUEUE_WORDS
    return words[verdict.code].format(
        name=verdict.detail,
        pool=cause.pool,
        here=cause.here,
        at=cause.at,
        word=word,
        unit=unit,
        most=most,
        held=held,
        asked=asked,
        field=cause.field,
        value=cause.value,
        allowed=_DURATIONS if cause.field.endswith("MinRuntime") else _AMOUNTS,
        deepest=verdict.required,
    )


def decimal(amount: int, one: int) -> str:
    """An amount of smallest units in whole ones, exact and without trailing zeros. ``one``: a power of ten."""
    whole, rest = divmod(amount, one)
    places = str(rest).zfill(len(str(one)) - 1) if rest else ""
    return f"{whole}.{places}".rstrip("0").rstrip(".") if places else str(whole)


def _no_node(verdict: Verdict, words: Mapping[str, str]) -> str:
    """The reasons by count, sorted as strings, as KAI sorts them."""
    if verdict.reserve is not None:
        kept = words["reserve"].format(owner=verdict.reserve.owner, since=rfc3339(verdict.reserve.since_s * SECOND_NS))
        words = {**words, "reserve": kept}
    parts = sorted(node_reason_text(reason, words) for reason in said_once(verdict.node_reasons, words))
    listed = " \n".join(f"{part}." for part in parts) if parts else "there are no nodes."
    return (
        f"no nodes with enough resources were found: {listed}{_kept(verdict)}{_selector(verdict)}{_shortfall(verdict)}"
    )


def _kept(verdict: Verdict) -> str:
    """Name pods that vanished for which devices are kept."""
    if not verdict.kept:
        return ""
    return f" Devices are kept for {', '.join(f'pod {each.pod} on node {each.node}' for each in verdict.kept)}."


def _selector(verdict: Verdict) -> str:
    """What is wrong with a selector of a claim or of its class."""
    return f" On one of them: {verdict.selector}." if verdict.selector else ""


def said_once(
    reasons: Iterable[NodeReason], words: Mapping[str, str] = KIND_WORDS, *, of_pods: bool = False
) -> list[NodeReason]:
    """Return the reasons, of those that have the same words one. ``of_pods``: pods are counted, not nodes.

    A node is out by one filter, but may lack several resources: then only the number of nodes that lack one is known.
    """
    found: dict[str, NodeReason] = {}
    for each in reasons:
        text = node_reason_text(each, words).partition(" ")[2]
        known = found.get(text, msgspec.structs.replace(each, nodes=0))
        is_sum = of_pods or each.kind != "insufficient"
        nodes = known.nodes + each.nodes if is_sum else max(known.nodes, each.nodes)
        found[text] = msgspec.structs.replace(known, nodes=nodes)
    return [*found.values()]


def node_reason_text(reason: NodeReason, words: Mapping[str, str] = KIND_WORDS) -> str:
    """Say how many nodes a reason keeps out, and which reason it is."""
    if reason.kind != "insufficient":
        return f"{reason.nodes} {words.get(reason.kind, reason.kind)}"
    if reason.resource.startswith(names.MIG_RESOURCE_PREFIX):
        return f"{reason.nodes} node(s) didn't have enough of mig profile: {reason.resource}"
    return (
        f"{reason.nodes} node(s) didn't have enough resources: {_RESOURCE_WORDS.get(reason.resource, reason.resource)}"
    )


def _shortfall(verdict: Verdict) -> str:
    """The smallest change that is known to help."""
    if verdict.shortfall is None:
        return ""
    unit, amount = verdict.shortfall
    return f" The best node lacks {_amount(unit, amount)}."


#: How resources begin that are counted in bytes.
_IN_BYTES: Final = ("hugepages-", names.EPHEMERAL_STORAGE_RESOURCE)


def with_article(kind: str) -> str:
    """A kind of object in a sentence: a PyTorchJob, an AppWrapper, an MPIJob, whose letters are spelt."""
    vowels = "AEFHILMNORSX" if kind[1:2].isupper() else "AEIOU"
    return f"{'an' if kind[:1].upper() in vowels else 'a'} {kind}"


def _amount(unit: str, amount: int) -> str:  # noqa: PLR0911 - one case per unit
    match unit:
        case "nano_gpu":
            return f"{decimal(amount, 1_000_000_000)} GPU"
        case "gpu":
            return f"{amount} GPU(s)"
        case "cpu_milli":
            return f"{amount} millicores of CPU"
        case "mem_mib":
            return f"{amount} MiB of memory"
        case "gpu_mem_mib":
            return f"{amount} MiB of GPU memory"
        case "compute_percent":
            return f"{amount}% of the compute of a GPU"
        case "pods":
            return f"{amount} pod slot(s)"
        case _ if unit.startswith(_IN_BYTES):
            return f"{-(-amount // 2**20)} MiB of {unit}"
        case _:
            return f"{amount} {unit}"


if TYPE_CHECKING:
    from scheduler.core.report.state import QueueState


def eviction_text(minimum: int, short: SubgroupShort | None, pod: str) -> str:
    """Say why a pod of a gang below its minimum is evicted (kai-contract 4.7). ``pod``: namespace and name."""
    what, required, where = "pods", minimum, ""
    if short is not None:
        what, required = "sub-groups" if short.is_of_subgroups else "pods", short.required
        where = f" in sub-group {short.name}" if short.name else ""
    lacks = f"Workload doesn't meet the minimum required number of {what} ({required}){where}"
    return f"{lacks}, evicting remaining pod: {pod}"


def preempted_text(pod: str, workload: str) -> str:
    """Say for whom a pod is evicted in its own queue (kai-contract 4.8). Both: namespace and name.

    Of a workload in another namespace than the pod no more than its queue (``of queue NAME``).
    """
    return f"Pod {pod} was preempted by higher priority workload {workload}"


def moved_text(pod: str) -> str:
    """Say that a pod is evicted to be placed on another node (kai-contract 4.8). ``pod``: namespace and name."""
    return f"Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure"


def reclaimed_text(pod: str, workload: str, queues: Iterable[QueueState]) -> str:
    """Say for whom of another queue a pod is evicted, and how the queues stand: its own, and the other one.

    ``workload`` as above.
    """
    sentences = (f"Pod {pod} was preempted by workload {workload}.", *map(_queue_sentence, queues))
    return " ".join(sentences)


def _queue_sentence(state: QueueState) -> str:
    record = state.record
    quota, fair = _amounts(record.quota), _amounts(state.fair or NOTHING)
    return (
        f"{record.name} uses <{_amounts(state.held)}> with a quota of <{quota}>, fair-share of <{fair}> "
        f"and queue priority of <{record.priority}>."
    )


def _amounts(resources: Resources) -> str:
    gpu, cpu, mem = (
        "unlimited" if amount >= UNLIMITED else decimal(amount, one)
        for amount, one in ((resources.gpu_nano, 10**9), (resources.cpu_milli, 1000), (resources.mem_bytes, 10**9))
    )
    return f"GPU: {gpu}, CPU: {cpu} (cores), memory: {mem} (GB)"
