"""How many writes of events may be in flight, by how the API server answers: a little more, or half as many.

Additive increase, multiplicative decrease, as TCP does it (RFC 5681): each round of answers in time allows one more;
an answer that took long, 429, 5xx or a lost connection halves what is allowed. After a failure nothing is written for
a while, which doubles with every further round of failures.
"""

from __future__ import annotations

import math
from typing import Final

from kube.client.patience import doubled_s

_FIRST_IN_FLIGHT: Final = 4
#: An answer that took longer says that the server, or this process, has too much to do.
SLOW_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 10.0


class EventPace:
    """Times are those of the event loop. ``most`` bounds the writes in flight."""

    def __init__(self, most: int) -> None:
        self.resume_at = -math.inf
        self._most = most
        self._allowed = float(min(_FIRST_IN_FLIGHT, most))
        self._failed_rounds = 0
        self._halved_at = -math.inf

    @property
    def in_flight(self) -> int:
        """How many writes may be in flight."""
        return int(self._allowed)

    def answered(self, began_at: float, now: float) -> None:
        """Take that a write was answered."""
        self._failed_rounds = 0
        if now - began_at > SLOW_S:
            self._allow_half(began_at, now)
        else:
            self._allowed = min(self._most, self._allowed + 1 / self._allowed)

    def failed(self, began_at: float, now: float, *, retry_after_s: float | None) -> float:
        """Take that a write failed in passing; return the seconds until writing goes on."""
        if self._allow_half(began_at, now):
            pause_s = doubled_s(_FIRST_PAUSE_S, self._failed_rounds, longest_s=_LONGEST_PAUSE_S)
            self._failed_rounds += 1
            self.resume_at = now + max(pause_s, retry_after_s or 0.0)
        return max(0.0, self.resume_at - now)

    def _allow_half(self, began_at: float, now: float) -> bool:
        """Allow half as many, once for all writes that were in flight together."""
        if began_at < self._halved_at:
            return False
        self._allowed, self._halved_at = max(1.0, self._allowed / 2), now
        return True
