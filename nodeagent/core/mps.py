"""What MPS (NVIDIA's Multi-Process Service, interface version 3) holds a tenant to, and what its container gets. Pure.

One control daemon a node, one server a GPU, one namespace a tenant. A client is in the namespace whose folder it was
given as its pipe directory. The limits of a namespace hold for each process in it.

Source: NVIDIA, MPS v3 Interface and MPS v3 Namespaces (driver r615).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from nodeagent.core.caps import Tenancy
from nodeagent.core.edits import Edits, Mount
from nodeagent.core.judging import Key
from wire import names

NAME: Final = "mps"
#: The mode of pods that wish to run under it. Those that wish no mode run under it, too.
_MODES: Final = frozenset({"", NAME})
ALL_COMPUTE: Final = 100
#: Of each server, for clients that name no namespace.
DEFAULT_NAMESPACE: Final = "default"
#: Socket in the folder of a namespace.
SOCKET: Final = "control"
#: Bytes of a socket's path, without the zero at its end (unix(7)).
LONGEST_PATH: Final = 107
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GPU: Final = "GPU-"
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


def wanted(tenant: Sequence[Tenancy]) -> Wanted | None:
    """Return what a tenant is held to; None where MPS does not serve it.

    A client has one pipe directory, and so one server and one GPU. Pods with several are not given one
    (gpu/agentlimits.py).
    """
    if len(tenant) != 1 or tenant[0].mode not in _MODES:
        return None
    (one,) = tenant
    percent = one.compute_percent if 0 < one.compute_percent < ALL_COMPUTE else ALL_COMPUTE
    if not (one.cap_mib or percent < ALL_COMPUTE) or not can_be_named(one.pod_uid, one.device):
        return None
    return Wanted(one.pod_uid, one.device, one.cap_mib, percent)


def can_be_named(pod_uid: str, device: str) -> bool:
    """Whether server and namespace can be named after them: a UUID of a pod and of a whole GPU, as both are written."""
    return (
        _UUID.fullmatch(pod_uid) is not None
        and device.startswith(_GPU)
        and _UUID.fullmatch(device.removeprefix(_GPU)) is not None
    )


def server(device: str) -> str:
    """Return the name of a GPU's server: lowercase letters and digits, at most 64, as the daemon allows."""
    return "g" + device.removeprefix(_GPU).replace("-", "")[:_DIGITS]


def namespace(pod_uid: str) -> str:
    """Return the name of a tenant's namespace, of the same signs."""
    return "t" + pod_uid.replace("-", "")


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


def edits(of: Wanted, pipes: PurePosixPath) -> Edits:
    """Return what a tenant's container gets.

    The folder is where the daemon has it, and read-only: nobody in the container puts another socket in its place.
    The container sees one GPU, its number 0. A pod's own entry for a GPU that is not there would make the client drop
    the namespace's memory limit as well, so the variables are replaced.
    """
    its = folder(pipes, of)
    env = {names.ENV_MPS_PIPES: str(its), names.ENV_MPS_PERCENT: str(of.compute_percent)}
    if of.memory_mib:
        env[names.ENV_MPS_MEMORY] = f"0={of.memory_mib}M"
    return Edits((Mount(its, its),), env)
