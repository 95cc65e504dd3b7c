"""Wall time, passed in. Monotonic time is the event loop's (anyio.current_time), virtual in simulations."""

from __future__ import annotations

import datetime
import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """Reads wall time."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC."""
        ...


def monotonic_ns() -> int:
    """Nanoseconds of the event loop's clock, from any beginning: for times that are only compared with each other.

    How long something lasts must not be told by a wall clock: that may jump, by hours.
    """
    return round(anyio.current_time() * 1_000_000_000)


class SystemClock:
    """The machine's clock: the one place that reads it."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC."""
        return time.time_ns()


def rfc3339(now_ns: int) -> str:
    """Seconds precision, as metav1.Time is written: ``2026-01-02T03:04:05Z``."""
    return _utc(now_ns).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(now_ns: int) -> str:
    """Always six digits, as metav1.MicroTime demands (a missing fraction is refused by the server)."""
    return _utc(now_ns).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(now_ns: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now_ns // 1_000_000_000, tz=datetime.UTC).replace(
        microsecond=now_ns // 1000 % 1_000_000
    )
