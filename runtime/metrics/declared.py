"""All metrics, by component. Nothing is counted under a name that is not declared here.

A metric is known before anything is counted: its name, help, unit, labels, and buckets.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_NAME: Final = re.compile(r"(moorage|kai|hami|metagpu)_[a-z][a-z0-9_]*[a-z0-9]")
#: Names of other systems are as they are (runtime/metrics/nodeagent.py).
_OWN: Final = ("moorage_", "kai_")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]*")


class Kind(enum.Enum):
    """Prometheus' kinds that are used. The value is what an exposition calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One family of series. ``labels``: what each is about; never a pod's, a user's or a node's name.

    ``name`` of a counter ends in ``_total``. ``buckets``: upper bounds of a histogram, without infinity.
    """

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, str] = {}
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name}: a metric's name is moorage_... or kai_... in snake_case")
        is_own = self.name.startswith(_OWN)
        if (self.kind is Kind.COUNTER) != self.name.endswith("_total") and is_own:
            raise ValueError(f"{self.name}: counters end in _total, and nothing else does")
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets) or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"{self.name}: histograms have rising buckets, and nothing else has any")
        if any(not _LABEL.fullmatch(label) or label == "le" for label in self.labels):
            raise ValueError(f"{self.name}: labels are snake_case, and le is Prometheus' own")

    @property
    def series(self) -> frozenset[str]:
        """The names under which it is queried."""
        if self.kind is Kind.HISTOGRAM:
            return frozenset(f"{self.name}{suffix}" for suffix in ("_bucket", "_sum", "_count"))
        return frozenset((self.name,))


def counter(name: str, help_: str, labels: Mapping[str, str] | None = None) -> Metric:
    """Declare what only grows."""
    return Metric(name=name, kind=Kind.COUNTER, help=help_, labels=labels or {})


def gauge(name: str, help_: str, labels: Mapping[str, str] | None = None) -> Metric:
    """Declare what is read as it is now."""
    return Metric(name=name, kind=Kind.GAUGE, help=help_, labels=labels or {})


def histogram(name: str, help_: str, labels: Mapping[str, str] | None = None, *, buckets: tuple[float, ...]) -> Metric:
    """Declare what is counted by size."""
    return Metric(name=name, kind=Kind.HISTOGRAM, help=help_, labels=labels or {}, buckets=buckets)


#: From a call to a near API server to the longest timeout.
_CALL_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LAG_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)

_REQUEST: Final = {
    "verb": "`get`, `list`, `watch`, `create`, `update`, `patch` or `delete`",
    "resource": "resource and subresource: `pods`, `pods/binding`, `bindrequests`, ...",
}

API_REQUESTS: Final = counter(
    "moorage_api_requests_total",
    "Requests to the API server, retries included.",
    {**_REQUEST, "code": "HTTP status, `timeout`, or `unreachable`"},
)
API_SECONDS: Final = histogram(
    "moorage_api_request_duration_seconds",
    "Duration of requests to the API server, without watches.",
    _REQUEST,
    buckets=_CALL_S,
)
WATCH_LAG: Final = histogram(
    "moorage_watch_lag_seconds",
    "Time from the answer to a write until the watch of the same component showed it.",
    {"resource": "resource that was written and is watched"},
    buckets=(*_LAG_S, 30.0),
)
_WATCHED: Final = {"resource": "watched resource"}
WATCH_SILENCE: Final = gauge(
    "moorage_watch_silence_seconds",
    "Time since the last event of a watch; bookmarks come about once a minute. Infinite before the first list.",
    _WATCHED,
)
WATCH_EVENTS: Final = counter("moorage_watch_events_total", "Events received by watches, bookmarks included.", _WATCHED)
WATCH_LISTS: Final = counter(
    "moorage_watch_lists_total", "Complete lists: at the start, by a new leader, after gaps.", _WATCHED
)
WATCH_UNREADABLE: Final = gauge(
    "moorage_watch_unreadable_objects", "Objects that could not be decoded and are ignored.", _WATCHED
)
LOOP_LAG: Final = histogram(
    "moorage_event_loop_lag_seconds",
    "Delay of the event loop, measured once a second.",
    buckets=_LAG_S,
)
KAI_AT_WORK: Final = gauge(
    "moorage_kai_at_work",
    "1 while a KAI Scheduler runs in namespace kai-scheduler, else 0. The replica stops meanwhile by default.",
)
LEADER: Final = gauge("moorage_leader", "1 while this replica leads, else 0. Without an election it is always 1.")

SPANS: Final = counter(
    "moorage_trace_spans_total",
    "Trace spans by outcome; none without --traces-endpoint.",
    {
        "outcome": "`exported`, `failed` (refused by the collector), or `dropped` (the queue was full; a pod that "
        "was not traced, because too many were, counts as one)"
    },
)

REVIEW_SECONDS: Final = histogram(
    "moorage_webhook_review_duration_seconds",
    "Time from the first byte of a review to its answer; the API server delays the request by it.",
    {
        "webhook": "`adopt`, `mutate` or `validate` (pods), `queue`, `podgroup`",
        "answer": "`allowed` unchanged, `patched`, `refused`, `malformed` (undecodable), `failed` (an exception)",
    },
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0),
)

#: From what an idle cluster needs to a queue of a day.
_WAIT_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
_STAGE_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

DECISIONS: Final = counter(
    "moorage_decisions_total",
    "Decisions that were started.",
    {
        "kind": "`bind` (no shared GPU), `join` (a share of a known GPU), `attempt` (handed to the binder), "
        "`hold` (waits for a GPU that is being opened), `gang`, `retire` (an idle reservation), `withdraw`, "
        "`nominate` (pods are evicted for others), `give-up` (not any more), "
        "`evict` (what is left of a gang goes)"
    },
)
VERDICTS: Final = counter(
    "moorage_verdicts_total",
    "Pods that received a new reason for being pending.",
    {"reason": "the verdict's code: `NoNodeFits`, `GangIncomplete`, `GangNotReady`, `UnsupportedConstraint`, ..."},
)
WAITING: Final = gauge(
    "moorage_waiting_pods",
    "Pending pods, as the leader sees them.",
    {"reason": "the verdict's code; `OnItsWay`: a placement exists; `Undecided`: not decided yet"},
)
STAGE_SECONDS: Final = histogram(
    "moorage_scheduling_stage_duration_seconds",
    "Duration of the stages of scheduling.",
    {
        "stage": "`decide` (one decision), `charge` (its placements); until their writes were answered: `bind`, "
        "`join`, `hand-over` (a BindRequest), `gang` (its start)"
    },
    buckets=_STAGE_S,
)
WAITED: Final = histogram(
    "moorage_pod_scheduling_duration_seconds",
    "Time from the leader's first sight of a pod until it sees the pod bound.",
    buckets=_WAIT_S,
)
COMMITS: Final = counter(
    "moorage_direct_binds_total",
    "Bindings written by the scheduler itself, by outcome.",
    {"outcome": "`bound`, `DeviceTaken`, `ReservationLost`, `Refused`, or `Overtaken`: the pod changed, or is gone"},
)
POOLS: Final = gauge(
    "moorage_pool_nano_gpus",
    "GPUs of a pool in nano-GPU (1e9 is one GPU), from the leader's ledger.",
    {
        "node_pool": "label `kai.scheduler/node-pool` of its nodes, empty without one",
        "product": "label `nvidia.com/gpu.product` of its nodes, empty without one",
        "state": "`used`; `free` (whole); `pieces` (left on shared GPUs); `stranded` (free but unusable: the node is "
        "not ready, cordoned, or out of CPU, memory or pod slots, or the shared GPU is closed)",
    },
)
UNUSABLE: Final = gauge(
    "moorage_unusable_nano_gpus",
    "Free GPUs of a pool, in nano-GPU, that no pod that waits or is usual can take; from the leader's ledger.",
    {
        "node_pool": "as in `moorage_pool_nano_gpus`",
        "product": "the same",
        "cause": "`not-ready` or `cordoned` (the node); `closed` (a shared GPU that takes no pod); `pieces` (less is "
        "left of the GPU, or fewer GPUs of the node, than any of these pods requests); `cpu`, `memory`, `pod-slots` "
        "(short beside the GPU); `several` (of these three)",
    },
)
LEDGER_DIFFERENCES: Final = counter(
    "moorage_ledger_differences_total",
    "Nodes whose ledger row differed from a recount. Anything above 0 is a bug.",
)
EVICTIONS: Final = counter(
    "moorage_evictions_total",
    "Evictions that were asked for, by what came of it.",
    {
        "action": "`reclaim`, `preempt` or `consolidation` (for other pods), `stalegangeviction` (the rest of a gang)",
        "result": "`evicted`; `gone` or `other-pod`: no need any more; asked again later: `refused` (by a "
        "PodDisruptionBudget), `failed` (no clear answer); `spared`: not asked any more",
    },
)
EVICTED_IN_VAIN: Final = counter(
    "moorage_evictions_without_start_total",
    "Pods that were evicted for others that did not start in their place.",
)
NOMINATIONS: Final = gauge(
    "moorage_nominations",
    "Current nominations (decisions to evict pods for others), as the leader sees them.",
    {"action": "`reclaim`, `preempt` or `consolidation`"},
)
CLASHING_CLAIMS: Final = gauge(
    "moorage_clashing_claims",
    "ResourceClaims with devices that another claim has, too, as the leader sees them.",
)
EXPLAIN_SECONDS: Final = histogram(
    "moorage_explain_duration_seconds",
    "Duration of questions why pods wait (`--explain-address`), from the request to its answer.",
    {
        "outcome": "`answered`; `refused`: no right, no such pod, or a malformed request; `busy`: too many questions, "
        "or the cluster is not read yet; `failed`: the API server did not review the reader's rights"
    },
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
)
EXPLAIN_SLICE_SECONDS: Final = histogram(
    "moorage_explain_slice_duration_seconds",
    "CPU time of the slices of explanations; a decision waits for the end of a slice.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
)
_KAI_MS: Final = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0)
KAI_E2E: Final = gauge(
    "kai_e2e_scheduling_latency_milliseconds",
    "KAI's name: duration of the last decision and of starting its writes.",
)
KAI_TASK: Final = histogram(
    "kai_task_scheduling_latency_milliseconds",
    "KAI's name for `moorage_pod_scheduling_duration_seconds`, in its unit and buckets.",
    buckets=_KAI_MS,
)
KAI_BIND: Final = histogram(
    "kai_task_bind_latency_milliseconds",
    "KAI's name: time until a Binding or BindRequest was answered; shares that join together count once.",
    buckets=_KAI_MS,
)

MIG_ATTEMPTS: Final = counter(
    "moorage_mig_attempts_total",
    "Changes of a GPU's MIG slices that were asked for, and what became of them; none without --mig-on-demand.",
    {
        "outcome": "`asked` (all), `done`, `refused` (by the agent: nothing was changed), `failed` (the driver "
        "refused), `withdrawn` (no agent took it up, or it did not end), `gone` (the GPU is not shown any more), "
        "`not-written`"
    },
)
MIG_GPUS: Final = gauge(
    "moorage_mig_gpus",
    "GPUs whose MIG slices are not changed for pods now, as the leader knows.",
    {"state": "`under-way`, `resting` (after a change), `left-out` (after an attempt in vain, longer each time)"},
)

_QUEUE: Final = {
    "queue_name": "name of the Queue",
    "queue_metadata_name": "the same",
    "queue_display_name": "`spec.displayName`",
}
#: KAI's names of what queues hold and may hold, by unit. A parent has what all queues below it have.
QUEUE_UNITS: Final = ("gpus", "cpu_cores", "memory_bytes")


def _of_queues(name: str, help_: str) -> tuple[Metric, ...]:
    return tuple(gauge(f"kai_queue_{name}_{unit}", f"KAI's name: {help_}", _QUEUE) for unit in QUEUE_UNITS)


QUEUE_INFO: Final = gauge("kai_queue_info", "KAI's name: 1 for each Queue.", _QUEUE)
QUEUE_QUOTA: Final = tuple(
    gauge(f"kai_queue_{name}", "KAI's name: quota of the queue; -1 is unlimited.", _QUEUE)
    for name in ("deserved_gpus", "quota_cpu_cores", "quota_memory_bytes")
)
QUEUE_LIMIT: Final = _of_queues("limit", "limit of the queue; -1 is unlimited.")
QUEUE_ALLOCATED: Final = _of_queues("allocated", "allocated to pods of the queue, terminating pods included.")
QUEUE_FIXED: Final = _of_queues("allocated_non_preemptible", "the part of it that can't be preempted.")
QUEUE_REQUESTED: Final = _of_queues("requested", "requested by pods of the queue that run or wait.")
QUEUE_FAIR: Final = tuple(
    gauge(f"kai_queue_fair_share_{unit}", "KAI's name: fair share of the queue, by the last decision.", _QUEUE)
    for unit in ("gpu", "cpu_cores", "memory_gb")
)
QUEUE_USED: Final = tuple(
    gauge(
        f"kai_queue_{resource}_usage",
        "KAI's name: what the queue used of the cluster over time, 1 for all of it; not there unless that counts.",
        _QUEUE,
    )
    for resource in ("cpu", "memory", "gpu")
)
QUEUE_OWED: Final = gauge(
    "moorage_queue_owed_nano_gpus",
    "GPUs, in nano-GPU, that pods of the queue wait for and that its quota guarantees, within all limits.",
    {"queue_metadata_name": _QUEUE["queue_metadata_name"]},
)
QUEUES: Final = (
    QUEUE_INFO, *QUEUE_QUOTA, *QUEUE_LIMIT, *QUEUE_ALLOCATED, *QUEUE_FIXED, *QUEUE_REQUESTED, *QUEUE_FAIR, *QUEUE_USED,
    QUEUE_OWED,
)  # fmt: skip
SCHEDULER: Final = (
    DECISIONS, VERDICTS, WAITING, STAGE_SECONDS, WAITED, COMMITS, POOLS, UNUSABLE,
    LEDGER_DIFFERENCES,
    EVICTIONS, EVICTED_IN_VAIN, NOMINATIONS, CLASHING_CLAIMS, MIG_ATTEMPTS, MIG_GPUS,
    EXPLAIN_SECONDS, EXPLAIN_SLICE_SECONDS,
    KAI_E2E, KAI_TASK, KAI_BIND, *QUEUES,
)  # fmt: skip

BINDS: Final = counter(
    "moorage_binds_total",
    "Attempts of the binder, by outcome.",
    {"outcome": "`bound`, or the cause: `DeviceTaken`, `ReservationFailed`, `ReservationSilent`, `Refused`, ..."},
)
BIND_SECONDS: Final = histogram(
    "moorage_bind_duration_seconds",
    "Time from the binder's first sight of a BindRequest until its attempt and its gang's ended.",
    {"outcome": "`bound` or `failed`"},
    buckets=(0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 300.0),
)
BIND_STAGE_SECONDS: Final = histogram(
    "moorage_bind_stage_duration_seconds",
    "Duration of the stages of an attempt.",
    {
        "stage": "`join` (writes the book, creates the reservation), `learn` (until it reports its GPU), `verify`, "
        "`bind`, `drop-request`, `read-pod`, `renew`, `config-maps`, `tell-bound`, `fence`, `leave`"
    },
    buckets=_STAGE_S,
)
GROUPS: Final = gauge("moorage_gpu_groups", "GPUs and MIG slices that are shared or kept for shares.")
TENANTS: Final = gauge("moorage_gpu_tenants", "Entries in the books of shared GPUs.")
RESERVATIONS: Final = gauge(
    "moorage_reservations",
    "Reservation pods by state.",
    {
        "state": "`shared` (has tenants), `idle`, `starting` (has not reported its GPU), `leaving`, `ended` (holds "
        "none), `ill` (its GPU is unhealthy), `unreadable` (its book is)"
    },
)
DRIFT: Final = gauge(
    "moorage_ledger_drift_pods",
    "Bound pods with a wrong entry in the book of their GPU; above 0 only for moments after a loss.",
    {
        "kind": "`unreserved` (its GPU has no reservation), `uncharged` (no entry), `undercharged`, `overcharged` "
        "(the entry is smaller, or larger, than the share it was bound with)"
    },
)
BINDER: Final = (BINDS, BIND_SECONDS, BIND_STAGE_SECONDS, GROUPS, TENANTS, RESERVATIONS, DRIFT)

POD_GROUPS_WRITTEN: Final = counter(
    "moorage_pod_groups_written_total",
    "PodGroups of workloads that were written.",
    {"write": "`created`, `changed` or `deleted`"},
)
GROUPED_PODS: Final = counter(
    "moorage_grouped_pods_total",
    "Pods that were looked at to group them, by outcome.",
    {
        "outcome": "`grouped`; without a PodGroup: `alone`, `skipped`, `grouped-by-hand`; tried again: `failed` (a "
        "request was), `not-found` (an owner), `several-owners`, `cycle`, `malformed`, `too-many-parts`, `not-read`"
    },
)
UNGROUPED: Final = gauge("moorage_ungrouped_workloads", "Workloads with pods that wait to be grouped by this replica.")
PODGROUPER: Final = (POD_GROUPS_WRITTEN, GROUPED_PODS, UNGROUPED)

DEVICE_REPORTS: Final = counter(
    "moorage_device_reports_total",
    "Answers of kubelet about reservation pods, by what came of them.",
    {
        "outcome": "`told` (its GPU was written), `agrees`, `withdrawn` (kubelet does not say it any more), "
        "`contradicted` (its process says another GPU), `left-to-process` (it has run and told no GPU); asked again: "
        "`unknown-pod`, `no-device`, `unclear` (several GPUs), `unknown-device` (the driver does not show it)"
    },
)
DEVICE_REPORT_SECONDS: Final = histogram(
    "moorage_device_report_duration_seconds",
    "Time from the agent's first sight of an admitted reservation pod until its GPU was written.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0),
)
KUBELET_SILENT: Final = counter(
    "moorage_kubelet_unanswered_total", "Requests to kubelet's pod-resources API that were not answered."
)
GPU_NODE_WRITES: Final = counter("moorage_gpu_node_writes_total", "Writes of the status of the node's GpuNode.")
NODE_GPUS: Final = gauge("moorage_node_gpus", "GPUs of the node, as its driver showed them last.")
PLUGIN_RIVALS: Final = gauge(
    "moorage_device_plugin_rivals", "Resources that another device plug-in serves in the place of the agent's."
)
MIG_LAYOUTS: Final = counter(
    "moorage_mig_layouts_total",
    "MIG layouts that the agent was asked for, by what became of them; none without --mig-on-demand.",
    {"state": "`done`, `refused` (nothing was changed), `failed` (the driver refused), `restored` (after a reboot)"},
)
NODE_AGENT: Final = (
    DEVICE_REPORTS,
    DEVICE_REPORT_SECONDS,
    KUBELET_SILENT,
    GPU_NODE_WRITES,
    NODE_GPUS,
    PLUGIN_RIVALS,
    MIG_LAYOUTS,
)

#: Of everything that talks to the API server.
_CLIENT: Final = (
    API_REQUESTS, API_SECONDS, WATCH_SILENCE, WATCH_EVENTS, WATCH_LISTS, WATCH_UNREADABLE, LOOP_LAG,
)  # fmt: skip
#: Of all components but the agent of a node, which sends no traces.
PROCESS: Final = (*_CLIENT, SPANS)
#: Of those that elect a leader.
REPLICA: Final = (*PROCESS, WATCH_LAG, LEADER, KAI_AT_WORK)

COMPONENTS: Final[Mapping[str, Sequence[Metric]]] = {
    "scheduler": (*REPLICA, *SCHEDULER),
    "binder": (*REPLICA, *BINDER),
    "podgrouper": (*REPLICA, *PODGROUPER),
    "admission": (*PROCESS, REVIEW_SECONDS),
    "node-agent": (*_CLIENT, WATCH_LAG, *NODE_AGENT),
}
