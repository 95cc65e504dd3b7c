"""What MPS (NVIDIA's Multi-Process Service, interface version 3) holds a tenant to, and how that is named. Pure.

One control daemon a node, one server a GPU, one namespace a tenant. A client is in the namespace whose folder it was
given as its pipe directory. The limits of a namespace hold for each process in it.

Source: NVIDIA, MPS v3 Interface and MPS v3 Namespaces (driver r615).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from nodeagent.core.judging import Key

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
    """Return the name of a GPU's server: lowercase letters and digits, at most 64, as the daemon allows."""
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
    """Return the folder of a tenant's namespace. ``pipes``: the daemon's pipe directory."""
    return pipes / server(of.device) / namespace(of.pod_uid)


def alone(tenants: Iterable[Wanted]) -> tuple[Wanted, ...]:
    """Leave out tenants of GPUs whose servers would have the same name: one would be limited on the other's GPU."""
    listed = tuple(tenants)
    devices: dict[str, set[str]] = {}
    for one in listed:
        devices.setdefault(server(one.device), set()).add(one.device)
    return tuple(one for one in listed if len(devices[server(one.device)]) == 1)
