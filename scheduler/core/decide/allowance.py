"""What one decision may spend, and how that is divided between namespaces.

While a decision lasts nothing else runs: no event is taken, no lease is renewed, nobody else's pod is decided on. So it
ends after a bounded amount of work, and the next one, which follows at once, goes on. Work is counted in operations of
about a microsecond, not in time, so that the same cluster gets the same plan.

As long as the bound is not reached nothing is different. Once it is, a namespace goes on only until it has spent its
equal share of the bound. So the pods of one tenant, however many and different, can't keep another's from their turn.
One pod alone may cost more than the bound, where it has to be looked for on many nodes: it counts as the bound at most,
and namespaces that have had nothing yet have a turn behind it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec


class Limits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Bounds of one decision. ``most``: operations in all; the default takes some 30 ms.

    ``retold``: the number of classes that are judged again though nothing may help them, those told longest ago first,
    as the counts in their verdicts may have changed. ``retelling``: operations that this may take, about.
    ``searching``: operations of searches for room, for each way to make it. ``makes_room`` False: none is searched for.
    ``explains`` False: verdicts do not count nodes by reason, which takes longer than to find that a pod fits nowhere.
    """

    most: int = 30_000
    retold: int = 20
    retelling: int = 5_000
    searching: int = 50_000
    makes_room: bool = True
    explains: bool = True


LIMITS: Final = Limits()
#: Beyond this many times the bound only namespaces that have had nothing go on, of any number of namespaces.
_AT_MOST: Final = 3
#: The most namespaces that go on then, each until it has spent the operations of ``_FIRST``.
_LATE: Final = 16
_FIRST: Final = 1_000


class Allowance:
    """Operations that are left to one decision. ``namespaces``: how many have pods that wait."""

    __slots__ = ("_late", "_most", "_spent", "_total", "share")

    def __init__(self, *, namespaces: int, most: int) -> None:
        self._most = most
        #: Operations of which each namespace is sure.
        self.share = most // max(1, namespaces)
        self._spent: Counter[str] = Counter()
        self._total = 0
        #: How many namespaces have had their first turn beyond the last bound.
        self._late = 0

    def has_left(self, namespace: str) -> bool:
        """Whether one more pod of this namespace may be decided on. The last one may exceed what is left."""
        if self._total < self._most:
            return True
        if self._total < _AT_MOST * self._most:
            return self._spent[namespace] <= self.share
        return self._late < _LATE and self._spent[namespace] < _FIRST

    @property
    def spent(self) -> int:
        """Operations that were done in all."""
        return self._total

    def spent_by(self, namespace: str) -> int:
        """Operations that were done for this namespace."""
        return self._spent[namespace]

    def spend(self, namespace: str, operations: int) -> None:
        """Count what was done for a pod of this namespace."""
        before = self._spent[namespace]
        self._spent[namespace] += operations
        if self._total >= _AT_MOST * self._most:
            self._late += before < _FIRST <= self._spent[namespace]
        self._total += min(operations, self._most)
