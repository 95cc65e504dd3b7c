"""In which order statuses are written: namespaces take turns, and some reasons of waiting pods have a bounded rate.

Where many pods have the same passing reason at once, as when a team takes thousands of GPUs back, most of them have
started before their turn comes. Their condition and event would have cost as much as their eviction and binding.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class ByNamespace(Generic[K]):
    """Objects: those of a namespace in the order in which they came, and one of each namespace in turn.

    So a namespace with thousands of them holds up its own, and no others.
    """

    def __init__(self) -> None:
        #: The namespace that is next comes first.
        self._keys: OrderedDict[str, dict[K, None]] = OrderedDict()
        self._namespace_of: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._namespace_of)

    def put(self, key: K, namespace: str) -> None:
        """Queue an object; one that is queued keeps its place."""
        if key not in self._namespace_of:
            self._namespace_of[key] = namespace
            self._keys.setdefault(namespace, {})[key] = None

    def discard(self, key: K) -> None:
        """Take an object out, if it is queued."""
        namespace = self._namespace_of.pop(key, None)
        if namespace is None:
            return
        keys = self._keys[namespace]
        del keys[key]
        if not keys:
            del self._keys[namespace]

    def pop(self) -> K:
        """Take the next object out. Raises StopIteration where none is queued."""
        namespace = next(iter(self._keys))
        key = next(iter(self._keys[namespace]))
        self.discard(key)
        if namespace in self._keys:
            self._keys.move_to_end(namespace)
        return key

    def clear(self) -> None:
        """Take all out."""
        self._keys.clear()
        self._namespace_of.clear()


class Turns:
    """Pods (UIDs) in the order in which they may speak. ``per_s``: turns a second at most, by the event loop's time."""

    def __init__(self, per_s: int) -> None:
        self._each_s = 1 / per_s
        self._pods = ByNamespace[str]()
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
