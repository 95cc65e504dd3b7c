"""Members of a gang beyond its minimum, one after another: the subgroup that has the least of its minimum comes first.

So kai-contract 14.11 has it: the lowest ratio of active members to the minimum, compared again for each one that is
placed. A subgroup without a minimum comes last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from scheduler.core.model.records import PodGroupRecord, PodRecord

#: All pods of no subgroup that the PodGroup names: what its minimum asks beyond those of its subgroups is theirs.
_REST: Final = ""
#: Whether there is no minimum, the ratio, the place of the first pod in the order of members, the subgroup.
_Turn = tuple[bool, int, int, str]
#: Ratios in parts of 2^64, rounded down: two of them with minimums below 2^31 are as equal or unequal as exact ones.
_PARTS_BITS: Final = 64


class Surplus:
    """``active``: members by subgroup that are bound or on their way. ``waiting``: the others, in their order."""

    def __init__(self, group: PodGroupRecord, active: Mapping[str, int], waiting: Iterable[PodRecord]) -> None:
        named = {subgroup.name: subgroup.minimum for subgroup in group.subgroups}
        self._minimums = {**named, _REST: max(0, group.minimum - sum(named.values()))}
        self._active = dict.fromkeys(self._minimums, 0)
        for name, count in active.items():
            self._active[self._known(name)] += count
        self._waiting: dict[str, deque[tuple[int, PodRecord]]] = {}
        for place, pod in enumerate(waiting):
            self._waiting.setdefault(self._known(pod.subgroup), deque()).append((place, pod))
        self._turns = [self._turn(name) for name in self._waiting]
        heapify(self._turns)
        self._last = ""
        self._is_taken = False

    def take(self) -> PodRecord | None:
        """The next one; None if there is none left."""
        if self._is_taken and self._waiting[self._last]:
            heappush(self._turns, self._turn(self._last))
        self._is_taken = bool(self._turns)
        if not self._turns:
            return None
        self._last = heappop(self._turns)[-1]
        return self._waiting[self._last].popleft()[1]

    def placed(self) -> None:
        """The one that was taken last is active now."""
        self._active[self._last] += 1

    def _known(self, subgroup: str) -> str:
        return subgroup if subgroup in self._minimums else _REST

    def _turn(self, name: str) -> _Turn:
        minimum, first = self._minimums[name], self._waiting[name][0][0]
        return (not minimum, (self._active[name] << _PARTS_BITS) // minimum if minimum else 0, first, name)
