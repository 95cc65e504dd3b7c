"""How long to wait after repeated failures: doubling, bounded, jittered from a given random source."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec


class BackoffRange(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the longest wait, in seconds, before jitter."""

    first_s: float
    most_s: float

    def jittered_s(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after that many failures in a row (1, 2...): half to all of the nominal wait.

        The jitter keeps callers that failed together from coming back together.
        """
        nominal_s = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 60))
        return nominal_s * rng.uniform(0.5, 1.0)


@dataclass(slots=True)
class Backoff:
    """Counts failures in a row and says how long to wait after each."""

    range: BackoffRange
    rng: random.Random
    failures: int = 0

    def fail(self) -> float:
        """Count a failure; return the seconds to wait."""
        self.failures += 1
        return self.range.jittered_s(self.failures, self.rng)

    def succeed(self) -> None:
        """Start over."""
        self.failures = 0
