"""Events of grouping, for metrics (runtime/processes/podgrouper.py)."""

from __future__ import annotations

import enum
from typing import TypeAlias

from kube.telemetry.logevents import EventSink
from podgrouper.core.answers import Code, Why


class Wrote(enum.Enum):
    """What was written. The value is its stable name for machines."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class Outcome(enum.Enum):
    """What became of a pod, beside the reasons why it gets no PodGroup (``Why``) or can't have one yet (``Code``)."""

    #: It names the PodGroup of its workload.
    GROUPED = "grouped"
    #: Something could not be read or written; it is tried again.
    FAILED = "failed"


#: A PodGroup was written, or a pod was looked at, with this result.
GroupingEvent: TypeAlias = Wrote | Outcome | Why | Code
Emit: TypeAlias = EventSink[GroupingEvent]
