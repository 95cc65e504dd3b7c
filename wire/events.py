"""Events of events.k8s.io/v1: what a component reports about an object.

``event_time`` is a MicroTime and must carry six digits (wire/rfc3339.py). The server refuses an
Event without ``reportingController``, ``reportingInstance``, ``action``, ``reason``, ``type``, and a note above 1024
bytes.
"""

from __future__ import annotations

from typing import Final

from wire.core import ObjectMeta, ObjectReference, WireStruct

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
MOST_NOTE_BYTES: Final = 1024


class EventSeries(WireStruct, frozen=True, gc=False):
    """That the same thing was seen ``count`` times (at least 2), the last time at a MicroTime."""

    count: int
    last_observed_time: str


class Event(WireStruct, frozen=True, gc=False):
    """What was done (``action``) about which object, why, and the note for people."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    type: str = ""
    regarding: ObjectReference | None = None
    related: ObjectReference | None = None
    note: str = ""
