"""Wall time, passed in. Monotonic time is the event loop's (anyio.current_time), virtual in simulations."""

from __future__ import annotations

import time
from typing import Protocol

import anyio

from wire.units import SECOND_NS


class Clock(Protocol):
    """Reads wall time."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC."""
        ...


def monotonic_ns() -> int:
    """Nanoseconds of the event loop's clock, from any beginning: for times that are only compared with each other.

    How long something lasts must not be told by a wall clock: that may jump, by hours.
    """
    return round(anyio.current_time() * SECOND_NS)


class SystemClock:
    """The machine's clock: the one place that reads it."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC."""
        return time.time_ns()
