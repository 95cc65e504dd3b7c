"""The CDI file with what limits tenants' containers, one device for each pod. Pure.

A container names the device ``moorage.dev/limits=POD-UID`` where its Binding did (gpu/limits.py). The runtime
refuses a container whose device is not in the file. So a container never starts without its limits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from nodeagent.core.edits import NO_PROGRAMS, READ_ONLY, Edits, Mount, Scratch
from wire import names

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
