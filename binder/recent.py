"""A dictionary that remembers only so much: what was last put in, up to a number of keys."""

from __future__ import annotations

from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """Values by key; the oldest keys are forgotten when there are more than ``capacity``.

    For what makes an answer faster or a wait shorter, never for what safety rests on: it may be gone any time.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[str, V] = {}

    def put(self, key: str, value: V) -> None:
        """Remember; a known key becomes the newest."""
        self._values.pop(key, None)
        self._values[key] = value
        if len(self._values) > self._capacity:
            del self._values[next(iter(self._values))]

    def forget(self, key: str) -> None:
        """Forget a key, known or not."""
        self._values.pop(key, None)

    def get(self, key: str) -> V | None:
        """Return what is remembered, or None."""
        return self._values.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)
