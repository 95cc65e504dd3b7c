"""Commands that give tenants their limits by the control daemon of MPS, and reading back which hold. Pure.

A step is taken when its effect is not there, and its effect is looked for again: whatever was lost, by a daemon that
died or a command that failed, is done once more. Nothing is ever forced: what has clients stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Final

from nodeagent.core import mps
from nodeagent.core.mps import Wanted
from nodeagent.core.mpscontrol import Namespace, Said, Server
from nodeagent.core.samples import MIB

#: Commands of one look. Each is a process of a moment.
MOST_COMMANDS: Final = 64
#: Of clients that join a server without a namespace: little, so that nothing is won by it.
DEFAULT_PERCENT: Final = 10
DEFAULT_MIB: Final = 1_024


@dataclass(frozen=True, slots=True)
class Command:
    """Words behind the program's name, about one server. ``device``: whose, where it limits a tenant."""

    words: tuple[str, ...]
    server: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A tenant whose namespace has its limits, as was read back. ``was_joined``: a process of it has been there."""

    wanted: Wanted
    was_joined: bool = False


def commands(wanted: Iterable[Wanted], said: Said, *, pipes: PurePosixPath) -> tuple[Command, ...]:
    """Return what to do next, at most ``MOST_COMMANDS``: what limits first, then what is not needed any more.

    A namespace without limits has the whole GPU. No container has it before it was read back with limits (``held``).
    """
    tenants = mps.alone(wanted)
    by_device = [_for(device, its, said, pipes) for device, its in _by_device(tenants).items()]
    # In turns: a GPU on which nothing succeeds holds up no other one.
    limiting = [command for turn in zip_longest(*by_device) for command in turn if command is not None]
    return (*limiting, *_leftovers(tenants, said))[:MOST_COMMANDS]


def held(
    wanted: Iterable[Wanted], said: Said, *, pipes: PurePosixPath, joined: Iterable[tuple[str, str]]
) -> tuple[Held, ...]:
    """Return which tenants' namespaces have their limits now. ``joined``: servers and namespaces that had a client."""
    servers = {one.name: one for one in said.servers}
    found = {(one.server, one.name): one for one in said.namespaces}
    seen = frozenset(joined)
    held = []
    for one in mps.alone(wanted):
        where = (mps.server(one.device), mps.namespace(one.pod_uid))
        server, default = servers.get(where[0]), found.get((where[0], mps.DEFAULT_NAMESPACE))
        if (
            server is not None
            and _serves(server, one.device, pipes)
            and _is_little(default)
            and _has_limits(found.get(where), one, pipes)
        ):
            held.append(Held(one, where in seen))
    return tuple(held)


def gone(wanted: Iterable[Wanted], said: Said, *, pipes: PurePosixPath) -> tuple[str, ...]:
    """Return GPUs whose server does not serve, where tenants want one: it has ended, or has not come up."""
    servers = {one.name: one for one in said.servers}
    devices = sorted({one.device for one in mps.alone(wanted)})
    serving = (servers.get(mps.server(device)) for device in devices)
    return tuple(
        device
        for device, server in zip(devices, serving, strict=True)
        if server is None or not _serves(server, device, pipes)
    )


def _by_device(tenants: Iterable[Wanted]) -> dict[str, list[Wanted]]:
    found: dict[str, list[Wanted]] = {}
    for one in tenants:
        found.setdefault(one.device, []).append(one)
    return found


def _for(device: str, tenants: list[Wanted], said: Said, pipes: PurePosixPath) -> Iterator[Command]:
    """What one GPU's server needs. One that is not listed has ended: it is created, and has nothing."""
    name = mps.server(device)
    found = {one.name: one for one in said.namespaces if one.server == name}
    if not any(one.name == name for one in said.servers):
        yield Command(("server", "create", name, "--uid=0", f"--allowed-devices={device}"), name, device)
        found = {}
    if not _is_little(found.get(mps.DEFAULT_NAMESPACE)):
        yield Command(("server", "set", name, *_limits(DEFAULT_MIB, DEFAULT_PERCENT)), name, device)
    for one in tenants:
        its = mps.namespace(one.pod_uid)
        if its not in found:
            yield Command(("namespace", "create", its, f"--server={name}"), name, device)
        if not _has_limits(found.get(its), one, pipes):
            yield Command(
                ("namespace", "set", its, f"--server={name}", *_limits(one.memory_mib, one.compute_percent)),
                name,
                device,
            )


def _leftovers(tenants: tuple[Wanted, ...], said: Said) -> Iterator[Command]:
    """Without ``--force``: the daemon refuses while there are clients, and is asked again."""
    kept = {(mps.server(one.device), mps.namespace(one.pod_uid)) for one in tenants}
    servers = {server for server, _ in kept}
    for one in said.namespaces:
        if one.name != mps.DEFAULT_NAMESPACE and (one.server, one.name) not in kept:
            yield Command(("namespace", "delete", one.name, f"--server={one.server}"), one.server)
    for server in said.servers:
        if server.name not in servers:
            yield Command(("server", "delete", server.name), server.name)


def _limits(memory_mib: int, percent: int) -> tuple[str, ...]:
    memory = (f"--pinned-memory-limit={memory_mib}M",) if memory_mib else ()
    return (*memory, f"--active-thread-percentage={percent}")


def _serves(server: Server, device: str, pipes: PurePosixPath) -> bool:
    return server.is_ready and server.devices == device and server.pipes == str(pipes / server.name)


def _is_within(found: Namespace | None, memory_mib: int, percent: int) -> bool:
    if found is None or found.compute_millis is None or found.compute_millis > percent * 1_000:
        return False
    return not memory_mib or (found.memory_bytes is not None and found.memory_bytes <= memory_mib * MIB)


def _is_little(default: Namespace | None) -> bool:
    return _is_within(default, DEFAULT_MIB, DEFAULT_PERCENT)


def _has_limits(found: Namespace | None, of: Wanted, pipes: PurePosixPath) -> bool:
    """Also where they are lower."""
    is_there = found is not None and found.pipes == str(mps.folder(pipes, of))
    return is_there and _is_within(found, of.memory_mib, of.compute_percent)
