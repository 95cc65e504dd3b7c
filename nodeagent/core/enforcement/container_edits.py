"""What is added to the containers of a tenant, as CDI says it, the file that says it, and how long it stays. Pure.

Hooks are left out: a hook is a program of the host that runs as root whenever a container starts. A container names the
device ``moorage.dev/limits=POD-UID`` where its Binding did (gpu/limits.py). The runtime refuses a container whose
device is not in the file. So a container never starts without its limits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from wire import names

#: Options of mounts: no writing, no programs.
READ_ONLY: Final = "ro"
NO_PROGRAMS: Final = "noexec"
_BIND: Final = ("nosuid", "nodev", "rbind", "rprivate")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host, at ``at`` in a container. ``is_code``: programs there may be run or loaded."""

    host: PurePosixPath
    at: PurePosixPath
    is_writable: bool = False
    is_code: bool = False

    def written(self) -> dict[str, Any]:
        """As a CDI file has it."""
        options = [
            *(() if self.is_writable else (READ_ONLY,)),
            *_BIND,
            *(() if self.is_code else (NO_PROGRAMS,)),
        ]
        return {"hostPath": str(self.host), "containerPath": str(self.at), "options": options}


@dataclass(frozen=True, slots=True)
class Scratch:
    """A file system of the container's own in memory, which nobody else sees. ``most_kib``: its size."""

    at: PurePosixPath
    most_kib: int

    def written(self) -> dict[str, Any]:
        """As a CDI file has it; every user of the container may write there."""
        options = [f"size={self.most_kib}k", "nr_inodes=64", "mode=1777", "nosuid", "nodev", NO_PROGRAMS]
        return {"hostPath": "tmpfs", "containerPath": str(self.at), "type": "tmpfs", "options": options}


@dataclass(frozen=True, slots=True)
class Edits:
    """All that is added. A variable that a container has already is replaced (containers of the CDI library)."""

    mounts: tuple[Mount | Scratch, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def with_former(self, former: Edits | None) -> Edits:
        """Return these with the variables that the same container had before, and lacks now.

        Those of another kind of limit are left out: what its variables name is not mounted any more.
        """
        if former is None or {each.at for each in former.mounts} != {each.at for each in self.mounts}:
            return self
        return Edits(self.mounts, {**former.env, **self.env})

    def written(self) -> dict[str, Any]:
        """As a CDI file has it, in an order that does not change."""
        found: dict[str, Any] = {}
        if self.env:
            found["env"] = [f"{name}={value}" for name, value in sorted(self.env.items())]
        if self.mounts:
            found["mounts"] = [mount.written() for mount in self.mounts]
        return found


def merged(parts: Iterable[Edits]) -> Edits:
    """Put the edits of several back ends together. Of one variable the last part's value counts."""
    mounts: list[Mount | Scratch] = []
    env: dict[str, str] = {}
    for part in parts:
        mounts += (mount for mount in part.mounts if mount not in mounts)
        env |= part.env
    return Edits(tuple(mounts), env)


FILE: Final = "moorage-limits.json"
#: The first in which a device's name may begin with a digit. A mount's type is older.
_VERSION: Final = "0.5.0"
#: Bytes that are read of a file: a thousand tenants take 4 MB.
MOST_BYTES: Final = 16 << 20


def content(edits: Mapping[str, Edits]) -> bytes:
    """Return the file. ``edits``: what the containers of each pod get, by its UID; none of them is empty."""
    devices = [{"name": pod, "containerEdits": each.written()} for pod, each in sorted(edits.items())]
    kind = names.LIMITS_DEVICE_PREFIX.removesuffix("=")
    return json.dumps({"cdiVersion": _VERSION, "kind": kind, "devices": devices}, indent=1).encode()


def pods_in(content: bytes) -> frozenset[str]:
    """Return the pods that have a device in a file. Raises ValueError for one that can't be read."""
    return frozenset(each["name"] for each in _devices(content))


def narrowed(content: bytes, pods: Collection[str]) -> bytes:
    """Return a file with the devices of these pods only, as they are. Raises ValueError."""
    kept = [each for each in _devices(content) if each["name"] in pods]
    return json.dumps({**json.loads(content), "devices": kept}, indent=1).encode()


def _devices(content: bytes) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads(content)["devices"]
        return [each for each in found if isinstance(each["name"], str) and each["name"]]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{FILE} is no file of limits: {error}") from error


class _Mount(msgspec.Struct, frozen=True, rename="camel"):
    host_path: str
    container_path: str
    options: tuple[str, ...]
    type: str = ""


class _Edits(msgspec.Struct, frozen=True):
    env: tuple[str, ...] = ()
    mounts: tuple[_Mount, ...] = ()


class _Device(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: _Edits


class _File(msgspec.Struct, frozen=True):
    devices: tuple[_Device, ...]


def edits_in(content: bytes) -> dict[str, Edits]:
    """Return what a file of ours gives the containers of each pod; nothing for one that can't be read."""
    try:
        said = msgspec.json.decode(content, type=_File)
        found = {each.name: _edits(each.container_edits) for each in said.devices}
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return {}
    return {pod: edits for pod, edits in found.items() if edits != Edits()}


def _edits(said: _Edits) -> Edits:
    """Read it back. Raises ValueError."""
    env = dict(each.split("=", 1) for each in said.env)
    return Edits(tuple(_mount(each) for each in said.mounts), env)


def _mount(said: _Mount) -> Mount | Scratch:
    at = PurePosixPath(said.container_path)
    if said.type:
        sizes = (option for option in said.options if option.startswith("size="))
        return Scratch(at, int(next(sizes, "").removeprefix("size=").removesuffix("k")))
    host = PurePosixPath(said.host_path)
    return Mount(host, at, is_writable=READ_ONLY not in said.options, is_code=NO_PROGRAMS not in said.options)


class Lasting:
    """``grace_s``: how long a thing is so before it counts. One that is not so once begins again."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._since_s: dict[str, float] = {}

    def begin(self, found: Collection[str]) -> None:
        """Begin with what has been so for long enough already, as something before this one has seen."""
        self._since_s |= dict.fromkeys(found, -math.inf)

    def take(self, found: Collection[str], now_s: float) -> frozenset[str]:
        """Take what is so now; return what has been so for long enough."""
        self._since_s = {each: self._since_s.get(each, now_s) for each in found}
        return frozenset(each for each, since_s in self._since_s.items() if now_s - since_s >= self._grace_s)


#: A container that was started with a folder or file can't be given another one. A pod may be out of all books for
#: longer than a minute, while a lost reservation is made again, and come back. So what it mounts stays for a day: no
#: pod runs that long without a book, since healing moves it. Nothing here knows whether the pod's control group is
#: there, and the agent has no right to see that.
KEPT_S: Final = 86_400.0
#: Of more the ones that were left first go.
MOST: Final = 1_024


class Leftovers:
    """Remembers since when each of them has been left, as far as it was seen since the agent was started.

    ``most``: how many stay.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._since_s: dict[str, float] = {}

    def expired(self, left: Collection[str], now_s: float) -> frozenset[str]:
        """Take in which are left now, and return those that are to be removed."""
        self._since_s = {name: self._since_s.get(name, now_s) for name in sorted(left)}
        oldest_first = sorted(self._since_s, key=self._since_s.__getitem__)
        too_many = oldest_first[: max(len(oldest_first) - self._most, 0)]
        return frozenset(too_many) | {name for name, at_s in self._since_s.items() if now_s - at_s >= KEPT_S}


class Lingering:
    """``kept_s``: how long a pod is kept that is not there any more."""

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._seen_s: dict[str, float] = {}

    def take(self, there: Collection[str], now_s: float) -> frozenset[str]:
        """Take in who is there now, and return all who are kept."""
        self._seen_s |= dict.fromkeys(there, now_s)
        self._seen_s = {pod: at_s for pod, at_s in self._seen_s.items() if now_s - at_s < self._kept_s}
        return frozenset(self._seen_s)
