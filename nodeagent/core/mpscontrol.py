"""Reading what the control daemon of MPS lists: servers, namespaces and clients. Pure.

Read as documented (NVIDIA, MPS v3 Interface): ``list --format=csv,noheader``, one line each, columns in a fixed order.
A line that is not of the form counts for nothing, so what it would name is not in place. Names of processes are chosen
by tenants: they come last in a line, and a line that a name has made is one more client, of any namespace
(nodeagent/core/mpsjoining.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: Bytes of an answer that are read.
MOST_BYTES: Final = 1 << 20
_READY: Final = "ready"
_NAME: Final = re.compile(r"[a-z0-9_]{1,64}")
#: The highest has seven digits.
_PID: Final = re.compile(r"[1-9][0-9]{0,6}")
_NUMBER: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?")
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MILLIS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Server:
    """``pipes``: its folder. ``devices``: as the daemon prints them, one text."""

    name: str
    is_ready: bool
    pipes: str
    devices: str


@dataclass(frozen=True, slots=True)
class Namespace:
    """``memory_bytes`` and ``compute_millis`` (thousandths of a percent): None where there is no limit that we read."""

    name: str
    server: str
    memory_bytes: int | None
    compute_millis: int | None
    pipes: str


@dataclass(frozen=True, slots=True)
class Client:
    """A process, as the daemon lists it. ``pid``: in the daemon's PID namespace."""

    pid: int
    server: str
    namespace: str

    @property
    def place(self) -> tuple[str, str]:
        """Server and namespace."""
        return self.server, self.namespace


@dataclass(frozen=True, slots=True)
class Said:
    """All that was said at one time."""

    servers: tuple[Server, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    clients: frozenset[Client] = frozenset()


def servers(answer: str) -> tuple[Server, ...]:
    """Read ``server list``: name, uid, pid, status, pipe directory, devices (which may have commas), contexts."""
    return tuple(
        Server(cells[0], cells[3].lower() == _READY, cells[4], ",".join(cells[5:-1]))
        for cells in _lines(answer)
        if len(cells) >= 7 and _NAME.fullmatch(cells[0])
    )


def namespaces(answer: str) -> tuple[Namespace, ...]:
    """Read ``namespace list``: name, server, its status, memory limit, thread percentage, priority, pipe directory."""
    return tuple(
        Namespace(cells[0], cells[1], memory_bytes(cells[3]), millis(cells[4]), cells[6])
        for cells in _lines(answer)
        if len(cells) == 7 and _NAME.fullmatch(cells[0]) and _NAME.fullmatch(cells[1])
    )


def clients(answer: str) -> frozenset[Client]:
    """Read ``client list``: pid, server, device, namespace, program.

    A process is a client of one namespace. One that is listed in several is a client of none: a line is false.
    """
    places: dict[int, set[Client]] = {}
    for cells in _lines(answer):
        if len(cells) >= 5 and _PID.fullmatch(cells[0]) and _NAME.fullmatch(cells[1]) and _NAME.fullmatch(cells[3]):
            pid = int(cells[0])
            places.setdefault(pid, set()).add(Client(pid, cells[1], cells[3]))
    return frozenset(one for found in places.values() if len(found) == 1 for one in found)


def memory_bytes(text: str) -> int | None:
    """Read an amount with its unit, as ``4G`` or ``19.5G``, rounded up; None where it is none, or above all bounds."""
    factor = _UNITS.get(text[-1:].upper(), 0)
    number = _NUMBER.fullmatch(text[:-1]) if factor else _NUMBER.fullmatch(text)
    if number is None:
        return None
    micros = int(number[1]) * 10**6 + int((number[2] or "").ljust(6, "0"))
    found = -(-micros * (factor or 1) // 10**6)
    return found if 0 < found < 1 << 63 else None


def millis(text: str) -> int | None:
    """Read a percentage, as ``30`` or ``30.00``, in thousandths rounded up; None where it is none from 0 to 100."""
    number = _NUMBER.fullmatch(text.removesuffix("%"))
    if number is None:
        return None
    micros = int(number[1]) * 10**6 + int((number[2] or "").ljust(6, "0"))
    found = -(-micros // _MILLIS)
    return found if 0 < found <= 100 * _MILLIS else None


def _lines(answer: str) -> Iterator[list[str]]:
    """Cut into cells. Only a line feed ends a line: other signs that do elsewhere are of a program's name."""
    for line in answer[:MOST_BYTES].split("\n"):
        yield [cell.strip() for cell in line.split(",")]
