"""Which pods are kept: those that are there, and for a while those that were. Pure: times are passed in."""

from __future__ import annotations

from collections.abc import Collection


class Lingering:
    """``kept_s``: how long a pod is kept that is not there any more."""

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._seen_s: dict[str, float] = {}

    def take(self, there: Collection[str], now_s: float) -> frozenset[str]:
        """Take in who is there now, and return all who are kept."""
        self._seen_s |= dict.fromkeys(there, now_s)
        self._seen_s = {pod: at_s for pod, at_s in self._seen_s.items() if now_s - at_s < self._kept_s}
        return frozenset(self._seen_s)
