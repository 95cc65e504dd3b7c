"""Quantiles by nearest rank: each is a value that really occurred."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], q: float) -> float:
    """The least value that at least a share ``q`` of all does not exceed. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values: a quantile needs at least one")
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def spread_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Times in seconds as p50, p99 and the worst, in milliseconds."""
    return {
        "p50_ms": round(quantile(seconds, 0.50) * 1e3, 1),
        "p99_ms": round(quantile(seconds, 0.99) * 1e3, 1),
        "worst_ms": round(max(seconds) * 1e3, 1),
    }
