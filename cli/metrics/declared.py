"""All metrics that there are, by the component that has them. Nothing is counted under a name that is not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cli.metrics.metric import Metric, counter, gauge, histogram

#: From what a call on a near API server takes to what one waits for at most.
_CALL_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LAG_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)

_REQUEST: Final = {
    "verb": "`get`, `list`, `watch`, `create`, `update`, `patch` or `delete`",
    "resource": "what it is about, with its sub-resource: `pods`, `pods/binding`, `bindrequests`, ...",
}

API_REQUESTS: Final = counter(
    "moorage_api_requests_total",
    "Requests to the API server, each try counted.",
    {**_REQUEST, "code": "HTTP status, `timeout`, or `unreachable`"},
)
API_SECONDS: Final = histogram(
    "moorage_api_request_duration_seconds",
    "Time until the API server had answered a request; watches are left out.",
    _REQUEST,
    buckets=_CALL_S,
)
WATCH_LAG: Final = histogram(
    "moorage_watch_lag_seconds",
    "Time from the answer to a write of ours until a watch showed it to us.",
    {"resource": "what was written and is watched"},
    buckets=(*_LAG_S, 30.0),
)
_WATCHED: Final = {"resource": "what is watched"}
WATCH_SILENCE: Final = gauge(
    "moorage_watch_silence_seconds",
    "Time since a watch was heard of last; bookmarks come about once a minute. Infinite before the first list.",
    _WATCHED,
)
WATCH_EVENTS: Final = counter("moorage_watch_events_total", "Events that watches brought, bookmarks too.", _WATCHED)
WATCH_LISTS: Final = counter(
    "moorage_watch_lists_total", "Lists that were read whole: at the start, by a new leader, after gaps.", _WATCHED
)
WATCH_UNREADABLE: Final = gauge(
    "moorage_watch_unreadable_objects", "Objects that are there and can't be read, so nothing goes by them.", _WATCHED
)
LOOP_LAG: Final = histogram(
    "moorage_event_loop_lag_seconds",
    "How late the event loop was with something that was due, looked at once a second.",
    buckets=_LAG_S,
)
KAI_AT_WORK: Final = gauge(
    "moorage_kai_at_work",
    "1 while a KAI Scheduler is at work in namespace kai-scheduler, for which this replica stops by default; else 0.",
)
LEADER: Final = gauge("moorage_leader", "1 while this replica leads, else 0. Without an election it is always 1.")

SPANS: Final = counter(
    "moorage_trace_spans_total",
    "Spans of traces by what became of them; none without --traces-endpoint.",
    {
        "outcome": "`exported`, `failed` (the collector did not take them), or `dropped` (too many waited to be sent; "
        "a pod that was not followed, as too many were, counts as one)"
    },
)

REVIEW_SECONDS: Final = histogram(
    "moorage_webhook_review_duration_seconds",
    "Time to answer a review, from when it began to come; the API server waits so long with the pod.",
    {
        "webhook": "`adopt`, `mutate` or `validate`",
        "answer": "`allowed` as it came, `patched`, `refused`, `malformed` (it could not be read), `failed` (we did)",
    },
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0),
)

#: From what an idle cluster needs to a queue of a day.
_WAIT_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
_STAGE_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

DECISIONS: Final = counter(
    "moorage_decisions_total",
    "What was decided, and begun at once.",
    {
        "kind": "`bind` (no books needed), `join` (a further share of a known GPU), `attempt` (handed to the binder), "
        "`hold` (waits for a GPU that is being made known), `gang`, `retire` (an idle reservation), `withdraw`"
    },
)
VERDICTS: Final = counter(
    "moorage_verdicts_total",
    "Pods that were given a reason to wait which they did not have before.",
    {"reason": "the verdict's code: `NoNodeFits`, `GangIncomplete`, `GangNotReady`, `UnsupportedConstraint`, ..."},
)
WAITING: Final = gauge(
    "moorage_waiting_pods",
    "Pods that wait, as the leader sees them.",
    {"reason": "the verdict's code; `OnItsWay`: a place is found; `Undecided`: it has just come"},
)
STAGE_SECONDS: Final = histogram(
    "moorage_scheduling_stage_duration_seconds",
    "Where the time of placements goes.",
    {
        "stage": "`decide` (one decision about all that waits), `charge` (what was decided); until the writes were "
        "answered: `bind`, `join`, `hand-over` (a BindRequest), `gang` (its start)"
    },
    buckets=_STAGE_S,
)
WAITED: Final = histogram(
    "moorage_pod_scheduling_duration_seconds",
    "Time from when the leader had first seen a pod of ours until it saw it bound.",
    buckets=_WAIT_S,
)
COMMITS: Final = counter(
    "moorage_direct_binds_total",
    "Binds that needed no binder, by how they ended.",
    {"outcome": "`bound`, `DeviceTaken`, `ReservationLost`, `Refused`, or `Overtaken`: the pod changed, or is gone"},
)
POOLS: Final = gauge(
    "moorage_pool_nano_gpus",
    "GPUs of a pool in nano-GPU (1e9 is a whole one), as the leader's ledger has them.",
    {
        "node_pool": "label `kai.scheduler/node-pool` of its nodes, empty without one",
        "product": "label `nvidia.com/gpu.product` of its nodes, empty without one",
        "state": "`used`; `free` (whole); `pieces` (left of shared GPUs that take tenants); `stranded` (free and for "
        "nobody: the node is not ready, cordoned, or out of CPU, memory or pod slots, or the shared GPU is closed)",
    },
)
LEDGER_DIFFERENCES: Final = counter(
    "moorage_ledger_differences_total",
    "Nodes whose row in the scheduler's ledger was not what a recount gave. Always 0, or we have a bug.",
)
_KAI_MS: Final = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0)
KAI_E2E: Final = gauge(
    "kai_e2e_scheduling_latency_milliseconds",
    "KAI's name: how long the last decision and starting its writes took.",
)
KAI_TASK: Final = histogram(
    "kai_task_scheduling_latency_milliseconds",
    "KAI's name for `moorage_pod_scheduling_duration_seconds`, in its unit and buckets.",
    buckets=_KAI_MS,
)
KAI_BIND: Final = histogram(
    "kai_task_bind_latency_milliseconds",
    "KAI's name: until a Binding, or a BindRequest, was answered; shares that join together are one.",
    buckets=_KAI_MS,
)
SCHEDULER: Final = (
    DECISIONS, VERDICTS, WAITING, STAGE_SECONDS, WAITED, COMMITS, POOLS, LEDGER_DIFFERENCES,
    KAI_E2E, KAI_TASK, KAI_BIND,
)  # fmt: skip

BINDS: Final = counter(
    "moorage_binds_total",
    "Attempts that came to the binder, by how they ended.",
    {"outcome": "`bound`, or what ended it: `DeviceTaken`, `ReservationFailed`, `ReservationSilent`, `Refused`, ..."},
)
BIND_SECONDS: Final = histogram(
    "moorage_bind_duration_seconds",
    "Time from when the binder had seen a BindRequest until its attempt, and its gang's, had ended.",
    {"outcome": "`bound` or `failed`"},
    buckets=(0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 300.0),
)
BIND_STAGE_SECONDS: Final = histogram(
    "moorage_bind_stage_duration_seconds",
    "Where the time of attempts goes.",
    {
        "stage": "`join` (a book; makes the reservation pod), `learn` (until it has told its GPU), `verify`, `bind`, "
        "`drop-request`, `read-pod`, `renew`, `config-maps`, `tell-bound`, `fence`, `leave`"
    },
    buckets=_STAGE_S,
)
GROUPS: Final = gauge("moorage_gpu_groups", "GPUs and MIG slices that are shared, or are kept for shares.")
TENANTS: Final = gauge("moorage_gpu_tenants", "Pods that stand in the books of shared GPUs, one for each GPU.")
RESERVATIONS: Final = gauge(
    "moorage_reservations",
    "Reservation pods by how they stand.",
    {
        "state": "`shared` (has tenants), `idle`, `starting` (has not told its GPU), `leaving`, `ended` (holds none), "
        "`ill` (its GPU is unhealthy), `unreadable` (so is its book)"
    },
)
DRIFT: Final = gauge(
    "moorage_ledger_drift_pods",
    "Bound pods that the books of their GPUs are wrong about; for moments after a loss, else 0.",
    {
        "kind": "`unreserved` (no reservation guards its GPU), `uncharged` (not in the book), `undercharged`, "
        "`overcharged` (the book has less, or more, for it than it was bound with)"
    },
)
BINDER: Final = (BINDS, BIND_SECONDS, BIND_STAGE_SECONDS, GROUPS, TENANTS, RESERVATIONS, DRIFT)

#: Of all components.
PROCESS: Final = (
    API_REQUESTS, API_SECONDS, WATCH_SILENCE, WATCH_EVENTS, WATCH_LISTS, WATCH_UNREADABLE, LOOP_LAG,
    SPANS,
)  # fmt: skip
#: Of those that elect a leader.
REPLICA: Final = (*PROCESS, WATCH_LAG, LEADER, KAI_AT_WORK)

COMPONENTS: Final[Mapping[str, Sequence[Metric]]] = {
    "scheduler": (*REPLICA, *SCHEDULER),
    "binder": (*REPLICA, *BINDER),
    "admission": (*PROCESS, REVIEW_SECONDS),
}
