"""Events that come in bursts: the first ones are written each, the others become a count on one more.

When a team takes back 4,000 GPUs, or a gang of 512 goes, an event for each pod says the same over and over, and costs
the API server as much as the evictions do. client-go does likewise with more than ten events about one object that
differ by their note (EventAggregator, whose words the note begins with).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import anyio
import msgspec

from kube.events import EventRecorder
from wire.core import ObjectReference
from wire.events import NORMAL

#: A burst is over so long after it began; what comes then begins another one.
WINDOW_S: Final = 600.0
#: As client-go has it.
PREFIX: Final = "(combined from similar events): "


class _Burst(msgspec.Struct, gc=False):
    """What came since ``began_s`` (event loop's time). ``rest``: object and note of the event for all others."""

    began_s: float
    count: int = 0
    rest: tuple[ObjectReference, str] | None = None


class Bursts:
    """Records events of one kind. What is alike is said by the caller, with each event."""

    def __init__(self, events: EventRecorder, *, reason: str, action: str) -> None:
        self._events = events
        self._reason = reason
        self._action = action
        #: The oldest first.
        self._bursts: dict[Hashable, _Burst] = {}

    def record(
        self,
        regarding: ObjectReference,
        note: str,
        *,
        alike: Hashable,
        most: int,
        type: str = NORMAL,  # noqa: A002 - as in EventRecorder.record
    ) -> None:
        """Note an event, or count it on that of others that are ``alike`` where ``most`` have had their own."""
        burst = self._burst(alike)
        burst.count += 1
        if burst.count > most:
            if burst.rest is None:
                burst.rest = regarding, PREFIX + note
            regarding, note = burst.rest
        self._events.record(regarding, reason=self._reason, action=self._action, note=note, type=type)

    def _burst(self, alike: Hashable) -> _Burst:
        now = anyio.current_time()
        while self._bursts and next(iter(self._bursts.values())).began_s + WINDOW_S <= now:
            del self._bursts[next(iter(self._bursts))]
        return self._bursts.setdefault(alike, _Burst(now))
