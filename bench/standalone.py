"""Parts that are programs of their own: run in a fresh interpreter, their JSON taken as it is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec

from bench.result import Figures

_WITHIN_S = 1800.0


def measure(part: str) -> Figures:
    """Run ``python -m bench.PART``. Raises subprocess.CalledProcessError when it fails."""
    command = [sys.executable, "-m", f"bench.{part}"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_WITHIN_S).stdout  # noqa: S603 - our own module
    return Figures(sizes={}, figures=_by_name(msgspec.json.decode(b"[" + _joined(told) + b"]")))


def _joined(told: bytes) -> bytes:
    """One object, or one a line, as the elements of a list."""
    if told.lstrip().startswith(b"{\n"):
        return told
    return b",".join(line for line in told.splitlines() if line.strip())


def _by_name(found: list[dict[str, Any]]) -> dict[str, Any]:
    """A single object is the figures; several are named by their ``bench``, numbered where a name comes again."""
    if len(found) == 1:
        return found[0]
    figures: dict[str, Any] = {}
    for one in found:
        name = str(one.pop("bench", "")).rpartition(".")[2]
        figures[name if name not in figures else f"{name}_{sum(key.startswith(name) for key in figures) + 1}"] = one
    return figures
