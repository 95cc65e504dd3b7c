"""What a part of the bench measures: sizes, quantiles, and the result with its conditions.

Quantiles are by nearest rank: each is a value that occurred. ``SMALL`` sizes are for trying the bench itself.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kube.client.clock import SystemClock
from wire.rfc3339 import rfc3339


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


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes by part; times in seconds.

    ``backlog``: (nodes, pods that wait, shapes). ``batch``: (nodes, rounds of filling them).
    ``whole``, ``preferring``: (nodes, rounds of each scheduler). ``arrival``: (nodes, pods a second, for so long).
    ``shares``: (delay of a reservation's start, pairs of pods). ``churn``: (pods, nodes). ``admission``: (reviews a
    second, for so long); ``admission_cost``: (seconds flat out, rounds); ``admission_rates``: tried in turn to find the
    highest.
    ``page_nodes``: nodes of each cluster; ``page_rounds``: how often each page is opened.
    ``tracing``: (nodes, rounds of each way). ``packing``: seeds of the default trace and of its variants, and (one node
    in this many, arrivals, seeds) while pods come and go.
    """

    whole: tuple[tuple[int, int], ...] = ((100, 4), (500, 1))
    preferring: tuple[tuple[int, int], ...] = ((100, 4), (500, 1))
    backlog: tuple[tuple[int, int, int], ...] = ((100, 1_000, 20), (1_000, 10_000, 20), (1_000, 10_000, 500))
    arrival: tuple[tuple[int, float, float], ...] = ((100, 50, 16), (100, 100, 8), (500, 100, 20))
    arrival_rounds: int = 2
    writes_pods: int = 200
    writes_shares: int = 60
    fractions: tuple[int, int] = (1_400, 100)
    fraction_rounds: int = 3
    shares: tuple[tuple[float, int], ...] = ((0.0, 30), (1.0, 10), (5.0, 5))
    idle: tuple[int, int] = (4_000, 500)
    idle_s: float = 60.0
    gang: tuple[tuple[int, int], ...] = ((256, 100), (512, 512))
    gang_rounds: int = 3
    #: Bars are for 500 nodes: 3.4 minutes in all on two cores that do little else.
    batch: tuple[int, int] = (500, 1)
    churn: tuple[int, int] = (100_000, 500)
    admission: tuple[tuple[float, float], ...] = ((100, 60), (1_000, 60))
    admission_cost: tuple[float, int] = (2.0, 15)
    admission_rates: tuple[float, ...] = (250, 500, 750, 1_000, 1_250, 1_500, 2_000, 2_500)
    admission_s: float = 5.0
    admission_held_s: float = 60.0
    page_nodes: tuple[int, ...] = (5, 500)
    page_rounds: int = 5
    page_updates: int = 20
    tracing: tuple[int, int] = (100, 4)
    packing: tuple[str, str, tuple[int, int, str]] = ("42-51", "42-43", (4, 12_000, "1-3"))


FULL = Sizes()
SMALL = Sizes(
    whole=((10, 1),),
    preferring=((10, 1),),
    backlog=((60, 100, 5),),
    arrival=((20, 50, 2),),
    arrival_rounds=1,
    writes_pods=20,
    writes_shares=10,
    fractions=(80, 10),
    fraction_rounds=1,
    shares=((0.0, 3), (1.0, 1)),
    idle=(80, 10),
    idle_s=5.0,
    gang=((32, 10),),
    gang_rounds=1,
    batch=(10, 1),
    churn=(1_000, 20),
    admission=((100, 2),),
    admission_cost=(0.5, 2),
    admission_rates=(200, 400),
    admission_s=2.0,
    admission_held_s=2.0,
    page_nodes=(2,),
    page_rounds=1,
    page_updates=2,
    tracing=(10, 2),
    packing=("42", "42", (40, 500, "1")),
)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One part. ``sizes`` says what was measured on, ``notes`` what one must know to read ``figures``."""

    name: str
    conditions: dict[str, Any]
    sizes: dict[str, Any]
    notes: Sequence[str] = ()
    figures: dict[str, Any]


class LeftOut(Exception):
    """Raised by a part that this machine has no data for; the message says which."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a part measured; the conditions are added for all of them in the same way."""

    sizes: dict[str, Any]
    notes: Sequence[str] = ()
    figures: dict[str, Any]


def conditions(kubernetes: str, *, preliminary: bool) -> dict[str, Any]:
    """Date, machine and versions. ``load_1m`` is the load before the part: what others did on the machine."""
    return {
        "date": rfc3339(SystemClock().now_ns()),
        "preliminary": preliminary,
        "python": platform.python_version(),
        "kubernetes": kubernetes,
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
