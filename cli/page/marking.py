"""What of a recorded run somebody will look for: when something was warned of; and when the run began. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from cli.page.lines import Line
from cli.page.values import Mark

#: What is warned of again within such a part of a run is one mark: two could not be told apart on a slider.
_PARTS: Final = 128
#: Reasons are anybody's words, so there may be any number of them.
MOST_MARKS: Final = 400
_WARNING: Final = "Warning"


class Marker:
    """Looks at lines as they come."""

    def __init__(self) -> None:
        #: One for each time that something was warned of, in order.
        self.warnings: list[Mark] = []
        #: The latest beginning by which nothing was made before it happened, since the epoch; 0: nothing tells.
        self.began_ms = 0
        self._counts: dict[str, int] = {}

    def take(self, line: Line, at_ms: int) -> None:
        """Look at a line of a moment."""
        event = line.event
        if event is not None and event.type == _WARNING and self._counts.get(event.key) != event.count:
            self._counts[event.key] = event.count
            self.warnings.append(Mark(at_ms=at_ms, reason=event.reason, namespace=event.namespace, pod=event.pod))
        told = event.at if event is not None else (line.pod.metadata.creation_timestamp or "") if line.pod else ""
        if told:
            self.began_ms = max(self.began_ms, _ms(told) - at_ms)


def marks(warnings: Sequence[Mark], from_ms: int, to_ms: int) -> list[Mark]:
    """Those of a part of a run as one mark for each reason, at the first of them. What was there before is left out."""
    there = [each for each in warnings if each.at_ms > from_ms]
    parts = _PARTS
    while True:
        made = _merged(there, from_ms, max(1, -(-(to_ms - from_ms + 1) // parts)))
        if len(made) <= MOST_MARKS or parts == 1:
            return made[:MOST_MARKS]
        parts //= 2


def _merged(warnings: Sequence[Mark], from_ms: int, part_ms: int) -> list[Mark]:
    found: dict[tuple[int, str], Mark] = {}
    times: dict[tuple[int, str], int] = {}
    for each in warnings:
        key = (each.at_ms - from_ms) // part_ms, each.reason
        found.setdefault(key, each)
        times[key] = times.get(key, 0) + 1
    return [
        Mark(at_ms=mark.at_ms, reason=mark.reason, namespace=mark.namespace, pod=mark.pod, times=times[key])
        for key, mark in found.items()
    ]


def _ms(text: str) -> int:
    """A time since the epoch; 0 for what is none."""
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
