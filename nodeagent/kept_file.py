"""A file that keeps what an agent knows for the next one; a reboot takes it away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

_T = TypeVar("_T")
MOST_BYTES: Final = 1 << 20


def read(path: Path, decoded: Callable[[bytes], _T]) -> _T:
    """Decode what was kept; no bytes where there are none that can be read."""
    try:
        with path.open("rb") as file:
            return decoded(file.read(MOST_BYTES))
    except OSError:
        return decoded(b"")


def write(path: Path, content: bytes) -> None:
    """Keep it, in one step. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(path)
