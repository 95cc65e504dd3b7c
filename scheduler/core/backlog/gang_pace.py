"""How often the start of a gang that costs much may be tried in vain.

A gang starts whole or not at all, so one try can't be divided between decisions: 5,000 members take some 200 ms however
little else a decision does. What can be bounded is how often that happens. After a start of more than ``LARGE``
operations failed

- no large start is tried for as long again, in this decision or the next ones, so that a pod that came meanwhile is
  decided on without waiting for a second one;
- the namespace tries none for five times as long, and longer if other namespaces have such gangs, until they have had
  their turn;
- the gang itself is not tried for ten times as long, and longer if its namespace has more such gangs, until they have
  had theirs.

Starts that succeed are not slowed down. Time is counted in operations of about a microsecond (allowance.py), not
measured, so that the same cluster gets the same plan.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

Key = tuple[str, str]
"""Namespace and name of a PodGroup."""

#: Operations from which on the start of a gang is large.
LARGE: Final = 5_000
_NS_PER_OPERATION: Final = 1_000
#: Failed large starts take one part in this many of the time: those of one namespace, and those of all.
_PARTS_OF_ONE: Final = 5
_PARTS_OF_ALL: Final = 2
#: Pauses are this many times the turns of those that failed before: gangs that were never tried come in between.
_ROUNDS: Final = 2


class _Failed(NamedTuple):
    """A large start that failed: what it cost, and when it may be tried again."""

    cost_ns: int
    until_ns: int


class GangPace:
    """When each gang whose start is large may be tried. Times in nanoseconds, of the clock that decisions are given."""

    __slots__ = ("_failed", "_of_namespace", "_until_ns")

    def __init__(self) -> None:
        self._failed: dict[Key, _Failed] = {}
        #: Namespace -> its last failed start, and when it may try one again.
        self._of_namespace: dict[str, _Failed] = {}
        self._until_ns = 0

    def next_ns(self, key: Key) -> int:
        """When a large start of this gang may be tried; 0: at any time."""
        own, namespace = self._failed.get(key), self._of_namespace.get(key[0])
        return max(self._until_ns, own.until_ns if own else 0, namespace.until_ns if namespace else 0)

    @property
    def is_kept(self) -> bool:
        """Whether anything is kept of any gang."""
        return bool(self._failed or self._of_namespace)

    def is_large(self, key: Key) -> bool:
        """Whether the last start of this gang failed and was large."""
        return key in self._failed

    def failed(self, key: Key, operations: int, now_ns: int) -> None:
        """Note what a start has cost that failed."""
        if operations <= LARGE:
            self._failed.pop(key, None)
            return
        namespace, cost_ns = key[0], operations * _NS_PER_OPERATION
        self._failed[key] = _Failed(cost_ns, 0)
        self._of_namespace[namespace] = _Failed(cost_ns, 0)
        round_ns = _ROUNDS * _PARTS_OF_ALL * sum(failed.cost_ns for failed in self._of_namespace.values())
        own = [failed.cost_ns for (of, _), failed in self._failed.items() if of == namespace]
        pause_ns = _ROUNDS * sum(max(_PARTS_OF_ONE * each_ns, round_ns) for each_ns in own)
        self._failed[key] = _Failed(cost_ns, now_ns + pause_ns)
        self._of_namespace[namespace] = _Failed(cost_ns, now_ns + max(_PARTS_OF_ONE * cost_ns, round_ns))
        self._until_ns = now_ns + _PARTS_OF_ALL * cost_ns

    def keep_only(self, gangs: Collection[Key], now_ns: int) -> None:
        """Forget gangs that don't wait any more. A namespace that has none left keeps its pause until it ends."""
        for key in self._failed.keys() - gangs:
            del self._failed[key]
        left = {namespace for namespace, _ in self._failed}
        for namespace in self._of_namespace.keys() - left:
            if self._of_namespace[namespace].until_ns <= now_ns:
                del self._of_namespace[namespace]
