"""What MPS (NVIDIA's Multi-Process Service, interface version 3) holds a tenant to, its names, and its lists. Pure.

One control daemon a node, one server a GPU, one namespace a tenant. A client is in the namespace whose folder it was
given as its pipe directory. The limits of a namespace hold for each process in it. Source: NVIDIA, MPS v3 Interface and
MPS v3 Namespaces (driver r615).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from nodeagent.core.enforcement.overuse import Key

NAME: Final = "mps"
ALL_COMPUTE: Final = 100
#: Of each server, for clients that name no namespace.
DEFAULT_NAMESPACE: Final = "default"
#: Socket in the folder of a namespace.
SOCKET: Final = "control"
#: Bytes of a socket's path, without the zero at its end (unix(7)).
LONGEST_PATH: Final = 107
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GPU: Final = "GPU-"
#: Before the digits of a pod's UID in its namespace's name.
_TENANT: Final = "t"
#: Digits of a GPU's UUID in its server's name. A path to a socket has 107 bytes.
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the processes of a tenant may use of their GPU, each of them. ``memory_mib``: 0 for no limit."""

    pod_uid: str
    device: str
    memory_mib: int
    compute_percent: int

    @property
    def key(self) -> Key:
        """Whose and where."""
        return self.pod_uid, self.device


def can_be_named(pod_uid: str, device: str) -> bool:
    """Whether server and namespace can be named after them: a UUID of a pod and of a whole GPU, as both are written."""
    return _UUID.fullmatch(pod_uid) is not None and is_gpu(device)


def is_gpu(device: str) -> bool:
    """Whether it is the UUID of a whole GPU, as NVML writes it."""
    return device.startswith(_GPU) and _UUID.fullmatch(device.removeprefix(_GPU)) is not None


def server(device: str) -> str:
    """Return the name of a GPU's server: lowercase letters and digits, at most 64, as the control daemon allows."""
    return "g" + device.removeprefix(_GPU).replace("-", "")[:_DIGITS]


def namespace(pod_uid: str) -> str:
    """Return the name of a tenant's namespace, of the same signs."""
    return _TENANT + pod_uid.replace("-", "")


def pod_of(namespace: str) -> str:
    """Return the UID of the pod whose namespace has this name; "" for another name."""
    digits = namespace.removeprefix(_TENANT)
    uid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return uid if _UUID.fullmatch(uid) and _TENANT + digits == namespace else ""


def folder(pipes: PurePosixPath, of: Wanted) -> PurePosixPath:
    """Return the folder of a tenant's namespace. ``pipes``: the control daemon's pipe directory."""
    return pipes / server(of.device) / namespace(of.pod_uid)


def alone(tenants: Iterable[Wanted]) -> tuple[Wanted, ...]:
    """Leave out tenants of GPUs whose servers would have the same name: one would be limited on the other's GPU."""
    listed = tuple(tenants)
    devices: dict[str, set[str]] = {}
    for one in listed:
        devices.setdefault(server(one.device), set()).add(one.device)
    return tuple(one for one in listed if len(devices[server(one.device)]) == 1)


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
    """``pipes``: its folder. ``devices``: as the control daemon prints them, one text."""

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
    """A process, as the control daemon lists it. ``pid``: in the control daemon's PID namespace."""

    pid: int
    server: str
    namespace: str

    @property
    def place(self) -> tuple[str, str]:
        """Server and namespace."""
        return self.server, self.namespace


@dataclass(frozen=True, slots=True)
class Said:
    """All that was said at one time.

    Read as documented: ``list --format=csv,noheader``, one line each, columns in a fixed order. A line that is not of
    the form counts for nothing, so what it would name is not in place.
    """

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


#: Server and namespace.
Place: TypeAlias = tuple[str, str]
#: Processes of one namespace that a look asks about. A tenant may make as many lines as an answer has.
MOST_ASKED: Final = 32


def in_question(before: Collection[Place], said: Said) -> tuple[Client, ...]:
    """Return clients whose pods are to be looked up: of namespaces of pods that are not known to be joined."""
    there = {(one.server, one.name) for one in said.namespaces if pod_of(one.name)}
    by_place: dict[Place, list[Client]] = {}
    for one in sorted(said.clients, key=lambda client: client.pid):
        if one.place in there and one.place not in before:
            by_place.setdefault(one.place, []).append(one)
    return tuple(one for listed in by_place.values() for one in listed[:MOST_ASKED])


def joined(before: Collection[Place], said: Said, pods: Mapping[int, str]) -> frozenset[Place]:
    """Return which namespaces have had a client, as long as they are there.

    ``pods``: the pod UID of each process in question, "" for one that is in no pod, or has ended.

    The list of clients has names of processes, which tenants choose and which come last in a line: one with line ends
    may make lines of any client, of any namespace. So a line counts only where the process that it names is in the
    control group of the pod whose namespace it names.
    """
    there = {(one.server, one.name) for one in said.namespaces}
    seen = {one.place for one in said.clients if pods.get(one.pid) and pods[one.pid] == pod_of(one.namespace)}
    return frozenset(place for place in {*before, *seen} if place in there)
