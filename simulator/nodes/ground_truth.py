"""What really happened on the simulated machines: the ground truth, in order, with its whole history, also in a file.

A record is made by the machine itself at the moment at which it happens, from what a container was started with, and
never from what the API server says about it. The invariant checker (simulator/checks/checker.py) adds these up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec


class Held(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The device manager gave a pod these devices (UUIDs), all of its containers taken together."""

    at_s: float
    node: str
    pod_uid: str
    devices: tuple[str, ...]


class Freed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The device manager took a pod's devices back."""

    at_s: float
    node: str
    pod_uid: str


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A container started and sees ``devices``; of these the device manager gave it ``assigned``.

    ``is_init``: it is in the list of init containers. ``restarts`` counts its earlier runs in this pod.
    """

    at_s: float
    node: str
    pod_uid: str
    pod: str
    container: str
    is_init: bool
    restarts: int
    devices: tuple[str, ...]
    assigned: tuple[str, ...]


class Stopped(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A container's process is gone."""

    at_s: float
    node: str
    pod_uid: str
    container: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Kubelet refused a pod that was bound to its node."""

    at_s: float
    node: str
    pod_uid: str
    reason: str


Record = Held | Freed | Started | Stopped | Refused
Listener = Callable[[Record], None]


@dataclass(slots=True)
class GroundTruth:
    """Keeps the records and tells listeners of each at once."""

    history: list[Record] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    _running: dict[tuple[str, str], Started] = field(default_factory=dict)
    #: Pod UID -> container -> devices of its newest run.
    _seen: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    def record(self, record: Record) -> None:
        """Add a record."""
        self.history.append(record)
        match record:
            case Started():
                self._running[record.pod_uid, record.container] = record
                self._seen.setdefault(record.pod_uid, {})[record.container] = record.devices
            case Stopped():
                self._running.pop((record.pod_uid, record.container), None)
            case _:
                pass
        for listener in self.listeners:
            listener(record)

    @property
    def running(self) -> tuple[Started, ...]:
        """Containers whose process lives now."""
        return tuple(self._running.values())

    def seen_by(self, pod_uid: str) -> Mapping[str, tuple[str, ...]]:
        """Return for each container of a pod the devices that its newest run saw."""
        return self._seen.get(pod_uid, {})


_decode: Final = msgspec.json.Decoder(Record).decode


class Recording:
    """A listener that appends a record to a file as soon as it happens, a JSON object a line; a context manager.

    A line is handed to the kernel in one write, so what a killed process saw is in the file, whole. Times are those of
    the machine's monotonic clock, the same in all its processes.
    """

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
