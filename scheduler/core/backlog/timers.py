"""Times at which pods and gangs are looked at again, though nothing happens: the earliest of each."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from scheduler.core.backlog.sayings import Key


class Timers:
    """A time for each pod (UID) or gang that asks for one."""

    def __init__(self) -> None:
        #: With those that an earlier one has replaced, which don't count. The second number tells equal times apart.
        self._heap: list[tuple[int, int, str | Key]] = []
        self._at_ns: dict[str | Key, int] = {}
        self._set = 0

    def put(self, at_ns: int, item: str | Key) -> None:
        """Have it due when this time has come, or earlier if that was asked before."""
        if self._at_ns.get(item, at_ns + 1) > at_ns:
            self._at_ns[item] = at_ns
            self._set += 1
            heappush(self._heap, (at_ns, self._set, item))

    def due(self, now_ns: int) -> Iterator[str | Key]:
        """Take those whose time has come, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, _, item = heappop(self._heap)
            if self._at_ns.get(item) == at_ns:
                del self._at_ns[item]
                yield item

    @property
    def next_ns(self) -> int | None:
        """When the next one is due."""
        while self._heap and self._at_ns.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
