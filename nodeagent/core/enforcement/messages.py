"""What the agent and the memory enforcer send each other: JSON behind its length, in four bytes, the highest first.

The agent sends caps, all of them each time; the memory enforcer a report for each look. Standard library only: the
memory enforcer has no more. A message of another form or beyond these bounds is refused, from any sender.

Agent and memory enforcer may be of different versions. So a reader ignores fields of the object that it does not know,
and a new fact is an optional field of its own. Lists keep their form.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nodeagent.core.enforcement.overuse import Action, Device, Key, Kill, Process, Sample

#: Bytes of a message. Caps of 8 full books of 1,907 tenants are 1.4 MB.
MOST_BYTES: Final = 4 << 20
#: Caps that a memory enforcer keeps: more than a node can have pods, on each of its devices.
MOST_CAPS: Final = 20_000
_MOST_MIB: Final = 1 << 30
#: Pods and cards whose limits a report tells of.
MOST_HELD: Final = 4_096
_LONGEST_WHY: Final = 100
_LENGTH: Final = 4
_POD: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DEVICE: Final = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9-]{1,76}")


class MalformedMessage(ValueError):
    """Raised for what is not of the form; the message names field, value and what is allowed. Nothing of it counts."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a kill: for each of its victims, in their order, one of the words of memory_enforcer/loop.py.

    ``more``: how many victims there were beside those that are told.
    """

    kill: Kill
    outcomes: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class Limited:
    """Whose caps the driver holds, as was read back (``held``). ``why``: why it holds none at all, "" where it can."""

    held: tuple[Key, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """One look of the memory enforcer, and what it did. ``caps``: how many it goes by, None before it was sent any.

    ``lost_kills``: kills that no agent was told of, since none listened. ``is_dry``: it ends nobody. ``driver``: None
    where it sets no limits by the driver.
    """

    sample: Sample
    done: tuple[Done, ...] = ()
    unjudged: tuple[str, ...] = ()
    caps: int | None = None
    lost_kills: int = 0
    is_dry: bool = False
    driver: Limited | None = None

    @property
    def told_together(self) -> int:
        """How many processes are not told one by one, since there are too many."""
        return sum(one.count for device in self.sample.devices for one in device.processes if not one.pid)


class Frames:
    """Cuts a stream of bytes into messages. Never holds more than one message, and the bytes of one read."""

    def __init__(self) -> None:
        self._held = bytearray()

    def cut(self, read: bytes) -> Iterator[bytes]:
        """Take what was read; yield each whole message. Raises MalformedMessage for one that is too long."""
        self._held += read
        while len(self._held) >= _LENGTH:
            length = int.from_bytes(self._held[:_LENGTH], "big")
            if length > MOST_BYTES:
                raise MalformedMessage(f"length: {length} bytes; at most {MOST_BYTES} are allowed")
            if len(self._held) < _LENGTH + length:
                return
            message = bytes(self._held[_LENGTH : _LENGTH + length])
            del self._held[: _LENGTH + length]
            yield message


def framed(said: Any) -> bytes:
    """Write a message."""
    body = _json(said)
    return len(body).to_bytes(_LENGTH, "big") + body


def size_of(done: Done) -> int:
    """Bytes that a kill takes in a report."""
    return len(_json(_written_done(done))) + 1


def _json(said: Any) -> bytes:
    """Names of processes have any sign: six bytes for each, or twelve, would be escapes of JSON."""
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def write_caps(caps: Mapping[Key, int]) -> bytes:
    """Write all caps, in MiB by pod UID and device UUID."""
    return framed({"caps": [[pod, device, mib] for (pod, device), mib in sorted(caps.items())]})


def read_caps(message: bytes) -> dict[Key, int]:
    """Read all caps. Raises MalformedMessage."""
    said = _object(message)
    listed = said.get("caps")
    if not isinstance(listed, list) or len(listed) > MOST_CAPS:
        raise MalformedMessage(f"caps: {_shown(listed)}; a list of at most {MOST_CAPS} is allowed")
    caps = dict(map(_cap, listed))
    if len(caps) != len(listed):
        raise MalformedMessage("caps: a pod is named twice for a device; once is allowed")
    return caps


def can_be_capped(pod_uid: str, device: str) -> bool:
    """Whether a memory enforcer takes a cap of this pod on this device: both have names as of Kubernetes and NVML."""
    return _POD.fullmatch(pod_uid) is not None and _DEVICE.fullmatch(device) is not None


def _cap(said: Any) -> tuple[Key, int]:
    match said:
        case [str(pod), str(device), int(mib)] if (
            can_be_capped(pod, device) and not isinstance(mib, bool) and 0 < mib <= _MOST_MIB
        ):
            return (pod, device), mib
        case _:
            allowed = f"[pod UID, device UUID, MiB from 1 to {_MOST_MIB}] is allowed"
            raise MalformedMessage(f"caps: {_shown(said)}; {allowed}")


def write_report(report: Report) -> bytes:
    """Write a report."""
    sample = report.sample
    return framed(
        {
            "at": sample.at_ns,
            "devices": [_written_device(device) for device in sample.devices],
            "unread": sample.unread,
            "done": [_written_done(done) for done in report.done],
            "unjudged": report.unjudged,
            "caps": report.caps,
            "lost": report.lost_kills,
            "dry": report.is_dry,
            "driver": _written_limited(report.driver),
        }
    )


def read_report(message: bytes) -> Report:
    """Read a report. Raises MalformedMessage."""
    said = _object(message)
    try:
        sample = Sample(
            _whole(said["at"]), tuple(map(_read_device, said["devices"])), tuple(map(_word, said["unread"]))
        )
        done = tuple(map(_read_done, said["done"]))
        unjudged = tuple(map(_word, said["unjudged"]))
        # A memory enforcer of before has no limits by the driver.
        driver = _read_limited(said.get("driver"))
        return Report(sample, done, unjudged, _known(said["caps"]), _whole(said["lost"]), said["dry"] is True, driver)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedMessage(f"report: {error!r:.200}") from error


def _written_limited(limited: Limited | None) -> list[Any] | None:
    return None if limited is None else [limited.held[:MOST_HELD], limited.why[:_LONGEST_WHY]]


def _read_limited(said: Any) -> Limited | None:
    if said is None:
        return None
    held, why = said
    return Limited(tuple((_word(pod), _word(device)) for pod, device in held), _word(why))


def _written_process(one: Process) -> list[Any]:
    told = [one.pid, one.started, one.used_bytes, one.sm_percent, one.pod_uid, one.container, one.name]
    # Left out where it is 1: an agent of before knows no count.
    return told if one.count == 1 else [*told, one.count]


def _written_device(device: Device) -> list[Any]:
    processes = [_written_process(one) for one in device.processes]
    return [device.uuid, device.total_bytes, device.used_bytes, device.sm_percent, processes]


def _written_done(done: Done) -> list[Any]:
    kill = done.kill
    victims = [_written_process(one) for one in kill.victims]
    told = [kill.pod_uid, kill.device, kill.used_bytes, kill.cap_mib, kill.action.value, kill.is_dry, victims]
    return [told, done.outcomes, done.more] if done.more else [told, done.outcomes]


def _read_process(said: Any) -> Process:
    pid, started, used_bytes, sm_percent, pod, container, name, *count = said
    return Process(
        _whole(pid),
        _whole(started),
        _known(used_bytes),
        _known(sm_percent),
        _word(pod),
        _word(container),
        _word(name),
        _one_of(count, 1),
    )


def _read_device(said: Any) -> Device:
    uuid, total_bytes, used_bytes, sm_percent, processes = said
    return Device(
        _word(uuid),
        _whole(total_bytes),
        _whole(used_bytes),
        tuple(map(_read_process, processes)),
        _known(sm_percent),
    )


def _read_done(said: Any) -> Done:
    (pod, device, used_bytes, cap_mib, action, is_dry, victims), outcomes, *more = said
    kill = Kill(
        _word(pod),
        _word(device),
        _whole(used_bytes),
        _whole(cap_mib),
        Action(action),
        tuple(map(_read_process, victims)),
        is_dry is True,
    )
    return Done(kill, tuple(map(_word, outcomes)), _one_of(more, 0))


def _one_of(said: list[Any], default: int) -> int:
    """A number that may be left out."""
    if len(said) > 1:
        raise MalformedMessage(f"{_shown(said)}: one number is allowed")
    return _whole(said[0]) if said else default


def _object(message: bytes) -> dict[str, Any]:
    try:
        said = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"message: {str(error)[:200]}; JSON is allowed") from error
    if not isinstance(said, dict):
        raise MalformedMessage(f"message: {_shown(said)}; an object is allowed")
    return said


def _whole(said: Any) -> int:
    # JSON makes no subclass of int but bool, which is no number here.
    if type(said) is int and 0 <= said < 1 << 64:
        return said
    raise MalformedMessage(f"{_shown(said)}: a whole number of 64 bits is allowed")


def _known(said: Any) -> int | None:
    return None if said is None else _whole(said)


def _word(said: Any) -> str:
    if not isinstance(said, str) or len(said) > 100:
        raise MalformedMessage(f"{_shown(said)}: a text of at most 100 characters is allowed")
    return said


def _shown(said: Any) -> str:
    return f"{said!r:.80}"


#: Processes told one by one, and pods whose others are told together, on all devices: 400 bytes each at most.
MOST_TOLD: Final = 4_000
#: Victims that a report names, of one kill.
MOST_VICTIMS: Final = 20
#: Of the kills in one report.
MOST_DEED_BYTES: Final = 1 << 20


def bounded(sample: Sample) -> Sample:
    """Return what is reported of a look. One with few processes is reported as it is.

    A tenant chooses how many processes it starts and what they are called. So the largest processes are told one by
    one, and the others of each pod together: sums of memory and use stay true.
    """
    if sum(len(device.processes) for device in sample.devices) <= MOST_TOLD:
        return sample
    most = max(MOST_TOLD // (2 * len(sample.devices)), 1)
    return replace(sample, devices=tuple(_bounded(device, most) for device in sample.devices))


def told(done: Done) -> Done:
    """Return what is kept of a kill: its largest victims, and how many more there were."""
    more = max(len(done.kill.victims) - MOST_VICTIMS, 0)
    kill = replace(done.kill, victims=done.kill.victims[:MOST_VICTIMS])
    return replace(done, kill=kill, outcomes=done.outcomes[:MOST_VICTIMS], more=done.more + more)


def fitting(done: Sequence[Done]) -> int:
    """Return how many of these, the first ones, go into one report; at least one.

    The others wait for the next report.
    """
    left = MOST_DEED_BYTES
    for number, one in enumerate(done):
        left -= size_of(one)
        if left < 0:
            return max(number, 1)
    return len(done)


def _bounded(device: Device, most: int) -> Device:
    largest = sorted(device.processes, key=lambda one: -(one.used_bytes or 0))
    others: defaultdict[str, list[Process]] = defaultdict(list)
    for one in largest[most:]:
        others[one.pod_uid].append(one)
    # Of more pods than can be told the last belong to nobody: no tenant is said to use what another one does.
    pods = list(others)
    beyond = [one for pod in pods[most - 1 :] for one in others[pod]] if len(pods) > most else []
    kept = pods[: most - 1] if beyond else pods
    together = [_together(pod, others[pod]) for pod in kept]
    return replace(device, processes=(*largest[:most], *together, *([_together("", beyond)] if beyond else [])))


def _together(pod_uid: str, processes: Sequence[Process]) -> Process:
    return Process(
        0,
        0,
        _sum([one.used_bytes for one in processes]),
        _sum([one.sm_percent for one in processes]),
        pod_uid,
        count=sum(one.count for one in processes),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
