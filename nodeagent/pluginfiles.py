"""The files of a device plug-in: its settings, which others write, and what it keeps for its next start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent.core.boundedyaml import MOST_BYTES
from nodeagent.core.mistake import Mistake
from nodeagent.core.remembered import Remembered, decoded, encoded

#: Of a state file that we wrote: 32 GPUs of 7 slices have 60 KiB.
_MOST_STATE_BYTES: Final = 1 << 20


def version(path: Path | Mistake | None) -> tuple[int, int, int] | None:
    """Tell one content of a file from the next; a mounted ConfigMap is a link to another file then."""
    if not isinstance(path, Path):
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_file(path: Path | Mistake | None) -> str | Mistake:
    """Read a settings file, and no more than one byte beyond what is allowed. "" if there should be none."""
    if path is None:
        return ""
    if isinstance(path, Mistake):
        return path
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1).decode(errors="replace")
    except OSError as error:
        return Mistake(str(path), f"can't be read: {error.strerror}", "a file")


def read_state(path: Path) -> Remembered:
    """Read what a plug-in kept before; nothing where there is nothing that can be read."""
    try:
        with path.open("rb") as file:
            return decoded(file.read(_MOST_STATE_BYTES))
    except OSError:
        return Remembered()


def write_state(path: Path, kept: Remembered) -> None:
    """Keep it, in one step. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(encoded(kept))
    fresh.replace(path)
