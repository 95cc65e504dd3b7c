"""What a part of the bench hands back, and the conditions under which it was measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kube.client.clock import SystemClock
from wire.rfc3339 import rfc3339


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
