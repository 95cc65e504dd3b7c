"""In which order pods may say why they wait: their namespaces take turns, and some reasons have a bounded rate.

Where many pods have the same passing reason at once, as when a team takes thousands of GPUs back, most of them have
started before their turn comes. Their condition and event would have cost as much as their eviction and binding.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable


class ByNamespace:
    """Pods (UIDs): those of a namespace in the order in which they came, and one of each namespace in turn.

    So a namespace with thousands of them holds up its own pods, and no others.
    """

    def __init__(self) -> None:
        #: The namespace that is next comes first.
        self._pods: OrderedDict[str, dict[str, None]] = OrderedDict()
        self._namespace_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._namespace_of)

    def put(self, uid: str, namespace: str) -> None:
        """Queue a pod; one that is queued keeps its place."""
        if uid not in self._namespace_of:
            self._namespace_of[uid] = namespace
            self._pods.setdefault(namespace, {})[uid] = None

    def discard(self, uid: str) -> None:
        """Take a pod out, if it is queued."""
        namespace = self._namespace_of.pop(uid, None)
        if namespace is None:
            return
        pods = self._pods[namespace]
        del pods[uid]
        if not pods:
            del self._pods[namespace]

    def pop(self) -> str:
        """Take the next pod out. Raises StopIteration where none is queued."""
        namespace = next(iter(self._pods))
        uid = next(iter(self._pods[namespace]))
        self.discard(uid)
        if namespace in self._pods:
            self._pods.move_to_end(namespace)
        return uid


class Turns:
    """Pods (UIDs) in the order in which they may speak. ``per_s``: turns a second at most, by the event loop's time."""

    def __init__(self, per_s: int) -> None:
        self._each_s = 1 / per_s
        self._pods = ByNamespace()
        self._next_at = -math.inf

    def put(self, uid: str, namespace: str) -> None:
        """Queue a pod; one that is queued keeps its place."""
        self._pods.put(uid, namespace)

    @property
    def next_at(self) -> float:
        """When the next pod has its turn; infinite where none is queued."""
        return self._next_at if self._pods else math.inf

    def take(self, now: float, is_due: Callable[[str], bool]) -> str | None:
        """Return the pod whose turn it is, or None. Pods that are not due any more leave without a turn."""
        if now < self._next_at:
            return None
        while self._pods:
            uid = self._pods.pop()
            if is_due(uid):
                self._next_at = now + self._each_s
                return uid
        return None
