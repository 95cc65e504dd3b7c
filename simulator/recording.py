"""What happened on simulated machines, in a file: a JSON object a line, there as soon as it happened.

A line is handed to the kernel in one write, so what a killed process saw is in the file, whole. Times are those of the
machine's monotonic clock, the same in all its processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from simulator.witness import Record

_decode: Final = msgspec.json.Decoder(Record).decode


class Recording:
    """A listener of a witness (simulator/witness.py) that appends to a file; a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> Self:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def __call__(self, record: Record) -> None:
        """Append a record."""
        os.write(self._file, msgspec.json.encode(record) + b"\n")


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a file, none if it is not there. Raises msgspec.DecodeError."""
    if path.exists():
        with path.open("rb") as lines:
            yield from map(_decode, lines)
