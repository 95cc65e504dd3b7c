"""When to look at groups though nothing happens: found at once, however many groups have a time."""

from __future__ import annotations

import math
from heapq import heappop, heappush


class Due:
    """The earliest time of each group (event loop's time)."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        #: Times and groups; entries that are no longer in ``_at`` are skipped.
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, group: str) -> bool:
        """Whether a group has a time."""
        return group in self._at

    def put(self, group: str, at: float) -> None:
        """Have a group looked at by then, or earlier if that was wanted before."""
        if at < self._at.get(group, math.inf):
            self._at[group] = at
            heappush(self._heap, (at, group))

    def take(self, now: float) -> list[str]:
        """Return the groups whose time has come; they have none any more."""
        taken: list[str] = []
        while self.next_at <= now:
            _, group = heappop(self._heap)
            del self._at[group]
            taken.append(group)
        return taken

    @property
    def next_at(self) -> float:
        """The earliest time of all; infinite if there is none."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf
