"""What has been so for long enough to be said of. Pure: the time is passed in."""

from __future__ import annotations

import math
from collections.abc import Collection


class Lasting:
    """``grace_s``: how long a thing is so before it counts. One that is not so once begins again."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._since_s: dict[str, float] = {}

    def begin(self, found: Collection[str]) -> None:
        """Begin with what has been so for long enough already, as something before this one has seen."""
        self._since_s |= dict.fromkeys(found, -math.inf)

    def take(self, found: Collection[str], now_s: float) -> frozenset[str]:
        """Take what is so now; return what has been so for long enough."""
        self._since_s = {each: self._since_s.get(each, now_s) for each in found}
        return frozenset(each for each, since_s in self._since_s.items() if now_s - since_s >= self._grace_s)
