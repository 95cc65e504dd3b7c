"""How much of a scheduler's time explanations may take: never two slices at once, and a tenth of the time over seconds.

A scheduler has one event loop. While a slice of an explanation is computed nothing is decided, so after each slice as
much time passes as it took, at least. What was not used is saved for ``BURST_S`` seconds of work, which is enough for
the first question after a quiet time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from cli.explaining.observing import Observer

#: Of all time, over long.
SHARE: Final = 0.1
#: Seconds of work that are saved while nobody asks.
BURST_S: Final = 2.0


class Budget:
    """Counts what slices took. ``worked_s``: a clock of this thread's CPU time, which others' load does not move."""

    def __init__(
        self,
        *,
        share: float = SHARE,
        burst_s: float = BURST_S,
        worked_s: Callable[[], float] = time.thread_time,
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer or Observer()
        self._worked_s = worked_s
        self._share = share
        self._burst_s = burst_s
        self._left_s = burst_s
        self._counted_at = float("-inf")
        #: When the next slice may begin, by the one before.
        self._next_at = float("-inf")

    def begins_at(self) -> float:
        """Return when the next slice may begin."""
        now = anyio.current_time()
        self._refill(now)
        return max(self._next_at, now if self._left_s > 0 else now - self._left_s / self._share)

    @contextmanager
    def slice(self) -> Iterator[None]:
        """Count what is done inside; nothing may be awaited there."""
        began_s = self._worked_s()
        self._refill(anyio.current_time())
        try:
            yield
        finally:
            took_s = self._worked_s() - began_s
            self._left_s -= took_s
            self._next_at = anyio.current_time() + took_s
            self._observer.sliced(took_s)

    def _refill(self, now: float) -> None:
        if now > self._counted_at > float("-inf"):
            self._left_s = min(self._burst_s, self._left_s + (now - self._counted_at) * self._share)
        self._counted_at = now
