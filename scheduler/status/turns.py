"""Turns at a bounded rate: pods that may say something when others had theirs, the first to come first.

Where many pods have the same passing reason at once, as when a team takes thousands of GPUs back, most of them have
started before their turn comes. Their condition and event would have cost as much as their eviction and binding.
"""

from __future__ import annotations

import math
from collections.abc import Callable


class Turns:
    """Pods (UIDs) in the order in which they came. ``per_s``: turns a second at most. Times are the event loop's."""

    def __init__(self, per_s: int) -> None:
        self._each_s = 1 / per_s
        self._pods: dict[str, None] = {}
        self._next_at = -math.inf

    def put(self, uid: str) -> None:
        """Queue a pod; one that is queued keeps its place."""
        self._pods.setdefault(uid)

    @property
    def next_at(self) -> float:
        """When the next pod has its turn; infinite where none is queued."""
        return self._next_at if self._pods else math.inf

    def take(self, now: float, is_due: Callable[[str], bool]) -> str | None:
        """Return the pod whose turn it is, or None. Pods that are not due any more leave without a turn."""
        if now < self._next_at:
            return None
        while self._pods:
            uid = next(iter(self._pods))
            del self._pods[uid]
            if is_due(uid):
                self._next_at = now + self._each_s
                return uid
        return None
