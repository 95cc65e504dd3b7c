"""What the agent and the MPS daemon send each other about tenants' limits, and the commands that set them. Pure.

Messages are in the frames of nodeagent/core/enforcement/messages.py. The agent sends all tenants each time, the MPS
daemon whose namespaces have their limits. Standard library only: the MPS daemon has no more. A message of another form
or beyond these bounds is refused, from any sender.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.core.enforcement.messages import MalformedMessage, framed
from nodeagent.core.enforcement.overuse import MIB
from nodeagent.core.mps import control
from nodeagent.core.mps.control import Namespace, Said, Server, Wanted
from wire.units import SECOND_NS

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

    A step is taken when its effect is not there, and its effect is looked for again: whatever was lost, by a control
    daemon that died or a command that failed, is done once more. Nothing is ever forced: what has clients stays.
    """
    tenants = control.alone(wanted)
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
    for one in control.alone(wanted):
        where = (control.server(one.device), control.namespace(one.pod_uid))
        server, default = servers.get(where[0]), found.get((where[0], control.DEFAULT_NAMESPACE))
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
    devices = sorted({one.device for one in control.alone(wanted)})
    serving = (servers.get(control.server(device)) for device in devices)
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
    name = control.server(device)
    found = {one.name: one for one in said.namespaces if one.server == name}
    if not any(one.name == name for one in said.servers):
        yield Command(("server", "create", name, "--uid=0", f"--allowed-devices={device}"), name, device)
        found = {}
    if not _is_little(found.get(control.DEFAULT_NAMESPACE)):
        yield Command(("server", "set", name, *_limits(DEFAULT_MIB, DEFAULT_PERCENT)), name, device)
    for one in tenants:
        its = control.namespace(one.pod_uid)
        if its not in found:
            yield Command(("namespace", "create", its, f"--server={name}"), name, device)
        if not _has_limits(found.get(its), one, pipes):
            yield Command(
                ("namespace", "set", its, f"--server={name}", *_limits(one.memory_mib, one.compute_percent)),
                name,
                device,
            )


def _leftovers(tenants: tuple[Wanted, ...], said: Said) -> Iterator[Command]:
    """Without ``--force``: the control daemon refuses while there are clients, and is asked again."""
    kept = {(control.server(one.device), control.namespace(one.pod_uid)) for one in tenants}
    servers = {server for server, _ in kept}
    for one in said.namespaces:
        if one.name != control.DEFAULT_NAMESPACE and (one.server, one.name) not in kept:
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
    is_there = found is not None and found.pipes == str(control.folder(pipes, of))
    return is_there and _is_within(found, of.memory_mib, of.compute_percent)


_FIRST_NS: Final = 10 * SECOND_NS
_LONGEST_NS: Final = 60 * SECOND_NS


@dataclass(frozen=True, slots=True)
class _Pause:
    length_ns: int
    until_ns: int
    why: str


class Pauses:
    """Times are of the monotonic clock. A server's pause doubles while its commands get no answer.

    A GPU that hangs keeps each command about its server waiting. Asked at every look, it would take the time of the
    others.
    """

    def __init__(self) -> None:
        self._paused: dict[str, _Pause] = {}

    def why(self, server: str, now_ns: int) -> str:
        """Return why no command is sent to it now; "" if commands are."""
        pause = self._paused.get(server)
        return pause.why if pause is not None and now_ns < pause.until_ns else ""

    def begin(self, server: str, now_ns: int, why: str) -> None:
        """Begin a pause, after a command that got no answer. ``why``: which one."""
        last = self._paused.get(server)
        pause_ns = _FIRST_NS if last is None else min(2 * last.length_ns, _LONGEST_NS)
        self._paused[server] = _Pause(pause_ns, now_ns + pause_ns, why)

    def end(self, server: str) -> None:
        """End a pause, after a command that was answered."""
        self._paused.pop(server, None)

    def keep(self, servers: Collection[str]) -> None:
        """Forget others than these."""
        self._paused = {server: paused for server, paused in self._paused.items() if server in servers}


#: Tenants of a message: more than a node has pods.
MOST_TENANTS: Final = 1_024
LONGEST_WHY: Final = 200
_MOST_MIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Report:
    """One look of the MPS daemon. ``why``: what is wrong, "" for nothing; some tenants may be held nevertheless.

    ``is_down``: the control daemon does not answer, so nobody is held. ``gone``: GPUs whose server does not serve.

    Agent and MPS daemon are of different versions for weeks: an MPS daemon is replaced on a drained node only. So a
    reader ignores fields that it does not know, and a new fact is an optional field of its own. Lists of tenants keep
    their form. What an MPS daemon must not ignore, an agent believes only once a report says it.
    """

    held: tuple[Held, ...] = ()
    why: str = ""
    is_down: bool = False
    gone: tuple[str, ...] = ()


def write_wanted(tenants: Iterable[Wanted]) -> bytes:
    """Write all tenants; what an MPS daemon would not take is left out, so that it takes the others."""
    listed = {one.key: one for one in tenants if control.can_be_named(one.pod_uid, one.device)}
    return framed({"tenants": [_written(one) for _, one in sorted(listed.items())[:MOST_TENANTS]]})


def read_wanted(message: bytes) -> tuple[Wanted, ...]:
    """Read all tenants. Raises MalformedMessage."""
    said = _object(message, "tenants")
    found = tuple(_wanted(each) for each in _listed(said["tenants"], "tenants"))
    if len({one.pod_uid for one in found}) != len(found):
        raise MalformedMessage("tenants: a pod is named twice; once is allowed, as it is a client of one server")
    return found


def write_report(report: Report) -> bytes:
    """Write a report."""
    held = [[*_written(one.wanted), one.was_joined] for one in report.held[:MOST_TENANTS]]
    gone = report.gone[:MOST_TENANTS]
    return framed({"held": held, "why": report.why[:LONGEST_WHY], "down": report.is_down, "gone": gone})


def read_report(message: bytes) -> Report:
    """Read a report. Raises MalformedMessage."""
    said = _object(message, "held", "down")
    why, is_down = said.get("why", ""), said["down"]
    if not isinstance(why, str) or len(why) > LONGEST_WHY:
        raise MalformedMessage(f"why: {_shown(why)}; a text of at most {LONGEST_WHY} characters is allowed")
    if not isinstance(is_down, bool):
        raise MalformedMessage(f"down: {_shown(is_down)}; true or false is allowed")
    gone = tuple(_gpu(each) for each in _listed(said.get("gone", []), "gone"))
    return Report(tuple(_held(each) for each in _listed(said["held"], "held")), why, is_down, gone)


def _written(one: Wanted) -> list[Any]:
    return [one.pod_uid, one.device, one.memory_mib, one.compute_percent]


def _wanted(said: Any) -> Wanted:
    match said:
        case [str(pod), str(device), int(mib), int(percent)] if (
            control.can_be_named(pod, device)
            and not isinstance(mib, bool)
            and not isinstance(percent, bool)
            and 0 <= mib <= _MOST_MIB
            and 0 < percent <= control.ALL_COMPUTE
        ):
            return Wanted(pod, device, mib, percent)
        case _:
            allowed = f"[pod UID, GPU UUID, MiB up to {_MOST_MIB}, percent from 1 to {control.ALL_COMPUTE}] is allowed"
            raise MalformedMessage(f"tenants: {_shown(said)}; {allowed}")


def _held(said: Any) -> Held:
    match said:
        case [*of, bool(was_joined)]:
            return Held(_wanted(of), was_joined)
        case _:
            raise MalformedMessage(f"held: {_shown(said)}; a tenant and whether it was joined is allowed")


def _gpu(said: Any) -> str:
    if isinstance(said, str) and control.is_gpu(said):
        return said
    raise MalformedMessage(f"gone: {_shown(said)}; the UUID of a GPU is allowed")


def _object(message: bytes, *fields: str) -> dict[str, Any]:
    """Read an object that has at least these fields."""
    try:
        said = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"message: {str(error)[:200]}; JSON is allowed") from error
    if not isinstance(said, dict) or not said.keys() >= set(fields):
        raise MalformedMessage(f"message: {_shown(said)}; an object with {' and '.join(fields)} is allowed")
    return said


def _listed(said: Any, field: str) -> list[Any]:
    if not isinstance(said, list) or len(said) > MOST_TENANTS:
        raise MalformedMessage(f"{field}: {_shown(said)}; a list of at most {MOST_TENANTS} is allowed")
    return said


def _shown(said: Any) -> str:
    return f"{said!r:.80}"
