"""A wall clock of one component that may be wrong: simulated processes read the time through it."""

from __future__ import annotations

from dataclasses import dataclass

from kube.client.clock import Clock


@dataclass(slots=True)
class SkewedClock:
    """Wall time (kube.client.clock.Clock) that is ``ahead_ns`` nanoseconds before the true one; negative: it is behind.

    It may be changed at any time: that is a jump of the clock. The event loop's own time never jumps, as a machine's
    monotonic clock doesn't.
    """

    true: Clock
    ahead_ns: int = 0

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC, as this clock believes."""
        return self.true.now_ns() + self.ahead_ns
