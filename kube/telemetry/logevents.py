"""Where components send what happens, the names of what is logged, and what a line says about which object.

Each component has a union of event types, for metrics, traces and tests. Its process gives it one function that takes
them and matches on the type. The function must not raise, and returns within microseconds: it is called in the middle
of the work.

Logging is Python's own (docs/logging.md). A line about a decision has a name of ``LogEvent``, which never changes, and
fields:

_log.info("bound", extra=about(LogEvent.POD_BOUND, pod="team/train-0", node="n1"))

How lines are written, limited and kept free of secrets is decided where a process starts (runtime/logs.py).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

E = TypeVar("E")

EventSink: TypeAlias = Callable[[E], None]


def ignore(*_event: object) -> None:
    """Take an event that nobody listens to."""


def each_of(*sinks: EventSink[E]) -> EventSink[E]:
    """Send each event to all of these, in this order."""

    def emit(event: E) -> None:
        for sink in sinks:
            sink(event)

    return emit


#: Fields that say which object a line is about. Lines about the same one are repeats, even if other fields differ.
OBJECTS: Final = frozenset({"pod", "gang", "group", "reservation", "node", "lease", "identity", "reason", "chosen"})
#: Under these names a record carries its event and its fields.
EVENT: Final = "event"
FIELDS: Final = "fields"


class LogEvent(enum.Enum):
    """What lines are named. Programs look for these words: they are added to, and never changed."""

    SETTINGS = "settings.read"
    #: An error that nobody expected has ended the process.
    PROCESS_FAILED = "process.failed"
    LOG_LEVEL = "log.level"
    LEADER_ELECTED = "leader.elected"
    LEADER_RESIGNED = "leader.resigned"
    #: A KAI Scheduler was started beside this replica.
    KAI_NOTICED = "kai.noticed"
    #: The scheduler has decided once.
    CYCLE_DECIDED = "cycle.decided"
    POD_ADMITTED = "pod.admitted"
    POD_REFUSED = "pod.refused"
    #: A Queue or PodGroup was refused by admission.
    OBJECT_REFUSED = "object.refused"
    POD_BOUND = "pod.bound"
    POD_WAITS = "pod.waits"
    POD_EVICTED = "pod.evicted"
    #: A pod has to go, and the API server does not let it be evicted yet.
    EVICTION_REFUSED = "eviction.refused"
    #: The record of evictions was written, before the first eviction.
    NOMINATION_MADE = "nomination.made"
    #: Nobody is evicted for it any more, and what it kept is free: its pods run, or do not need it.
    NOMINATION_ENDED = "nomination.ended"
    #: A BindRequest was made.
    ATTEMPT_MADE = "attempt.made"
    ATTEMPT_FAILED = "attempt.failed"
    GANG_STARTED = "gang.started"
    GANG_FAILED = "gang.failed"
    GROUP_MADE = "group.made"
    GROUP_CHANGED = "group.changed"
    GROUP_DELETED = "group.deleted"
    GROUPING_FAILED = "grouping.failed"
    RESERVATION_MADE = "reservation.made"
    RESERVATION_ADOPTED = "reservation.adopted"
    #: The node agent told its device, or took its word back.
    DEVICE_REPORTED = "device.reported"
    RESERVATION_LOST = "reservation.lost"
    RESERVATION_REMOVED = "reservation.removed"
    SCALING_MADE = "scaling.made"
    SCALING_REMOVED = "scaling.removed"


def about(event: LogEvent, /, **fields: object) -> Mapping[str, Any]:
    """Return what a call of a logger takes as ``extra``. Fields are named with their unit: ``wait_s``, ``mem_mib``."""
    return {EVENT: event.value, FIELDS: fields}
