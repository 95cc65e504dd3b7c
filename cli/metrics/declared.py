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
LEADER: Final = gauge("moorage_leader", "1 while this replica leads, else 0. Without an election it is always 1.")

REVIEW_SECONDS: Final = histogram(
    "moorage_webhook_review_duration_seconds",
    "Time to answer a review, from when it began to come; the API server waits so long with the pod.",
    {
        "webhook": "`adopt`, `mutate` or `validate`",
        "answer": "`allowed` as it came, `patched`, `refused`, `malformed` (it could not be read), `failed` (we did)",
    },
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0),
)

#: Of all components.
PROCESS: Final = (
    API_REQUESTS, API_SECONDS, WATCH_SILENCE, WATCH_EVENTS, WATCH_LISTS, WATCH_UNREADABLE, LOOP_LAG,
)  # fmt: skip
#: Of those that elect a leader.
REPLICA: Final = (*PROCESS, WATCH_LAG, LEADER)

COMPONENTS: Final[Mapping[str, Sequence[Metric]]] = {
    "scheduler": REPLICA,
    "binder": REPLICA,
    "admission": (*PROCESS, REVIEW_SECONDS),
}
