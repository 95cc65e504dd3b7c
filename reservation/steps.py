"""What the process inside a reservation pod does, as a pure step function (kai-contract 1.7, protocol.md step 2).

It holds one physical device by merely existing, and says which one: it reads its own pod, asks NVML, writes the
identity into the pod's annotations if it is not there already, and then holds until it is stopped. Errors end the
process with code 1; restarting it is kubelet's part (restartPolicy Always).

*At every container start* the device is read again and compared. KAI trusts an identity that it finds. But a restart
may follow a reboot or a repair, and the device plugin may have handed out another card: tenants of the old one
would then share with a stranger unseen. So a new UUID **overwrites** the old one: that is what the binder watches, it
knows from the tenants' grants what they were promised, and so the loss shows. Exiting instead would leave the old UUID
standing for ever, and with it tenants joining a device that this pod does not hold.

The write names the pod's own UID as precondition, so that a process that outlived its pod can't write into the
successor of the same name. The UID comes from the environment; pods made by KAI don't pass it, there the first GET
counts (a token bound to a deleted pod is refused by the API server, which covers the gap).

A driver carries actions out and reports events; over kube.client.transport and anyio it reads::

    state, action = steps.start(environ)
    while not isinstance(action, steps.Exit):
        match action:
            case steps.Call():
                event = await answer(transport, action)  # Answer, or NoAnswer for kube.client.errors.Unreachable
            case steps.ReadDevice():
                event = reader.read()
            case steps.Wait():
                await anyio.sleep(action.seconds)
                event = steps.Waited()
            case steps.Hold():
                await stop.wait()
                event = steps.Stopped()
        state, action = steps.step(state, event)
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from reservation.device import Device, Unreadable
from wire import names

MERGE_PATCH = "application/merge-patch+json"

#: Calls to the API server in one life of the process; with the pauses below it gives up after half a minute.
MAX_CALLS = 8
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0
#: A server that asks for more patience than this is left to kubelet's restarts.
_LONGEST_RETRY_AFTER_S = 30.0
#: The server gives a write up after this, sooner than we do, so that it can't land after we stopped waiting for it.
_WRITE_TIMEOUT = "4s"

# --- what the driver is asked to do ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """Send one request to the API server; ``body`` is a merge patch, or None for a GET."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class ReadDevice:
    """Ask the DeviceReader; what it returns is the event."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a while; ``reason`` is for the log."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Do nothing until told to stop; ``message`` is for the log."""

    message: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process with ``code``; ``message`` is one line for stderr, "" for none."""

    code: int
    message: str = ""


Action = Call | ReadDevice | Wait | Hold | Exit

# --- what the driver reports -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server answered, with any status. ``retry_after_s`` is its header of that name, 0 if none."""

    status: int
    body: bytes
    retry_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No whole answer came: not reached, broken off, or too late."""

    message: str


@dataclass(frozen=True, slots=True)
class Waited:
    """The pause is over."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Somebody wants the process to end (SIGTERM). May be reported in place of any other event."""


Event = Answer | NoAnswer | Device | Unreadable | Waited | Stopped

# --- the steps ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """What is known so far. ``call`` is the last one made, to be repeated after a pause."""

    namespace: str
    name: str
    #: "" until the first GET, where the environment does not tell.
    uid: str
    call: Call
    calls_made: int = 0
    #: The identity that the pod's annotations have, as last read.
    recorded: Mapping[str, str] = field(default_factory=dict)
    device: Device | None = None


def start(environ: Mapping[str, str]) -> tuple[State, Action]:
    """Begin one life of the process from its environment (downward API)."""
    namespace, name = environ.get(names.ENV_POD_NAMESPACE, ""), environ.get(names.ENV_POD_NAME, "")
    call = Call("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}")
    state = State(namespace=namespace, name=name, uid=environ.get(names.ENV_POD_UID, ""), call=call)
    for variable, value in ((names.ENV_POD_NAMESPACE, namespace), (names.ENV_POD_NAME, name)):
        if not value:
            return state, Exit(1, f"{variable} is not set: the pod must pass it by the downward API")
    return _calling(state, call)


def step(state: State, event: Event) -> tuple[State, Action]:
    """Return what is known after an event, and what to do next."""
    match event:
        case Stopped():
            return state, Exit(0)
        case Unreadable(message=message):
            return state, Exit(1, message)
        case Device():
            return _compare(replace(state, device=event))
        case Waited():
            return _calling(state, state.call)
        case Answer() | NoAnswer():
            return _answered(state, event)


def _calling(state: State, call: Call) -> tuple[State, Action]:
    return replace(state, call=call, calls_made=state.calls_made + 1), call


def _answered(state: State, answer: Answer | NoAnswer) -> tuple[State, Action]:
    if isinstance(answer, NoAnswer):
        return _later(state, answer.message)
    if answer.status != 200:
        return _refused(state, answer)
    return _read(state, answer.body) if _is_read(state.call) else _hold(state)


def _is_read(call: Call) -> bool:
    return call.method == "GET"


def _read(state: State, body: bytes) -> tuple[State, Action]:
    try:
        metadata = json.loads(body)["metadata"]
        uid, annotations = str(metadata["uid"]), dict(metadata.get("annotations") or {})
    except (ValueError, KeyError, TypeError) as error:
        return state, Exit(1, f"{_failing(state)}: the answer is not a pod ({type(error).__name__}: {error})")
    if state.uid and uid != state.uid:
        return state, Exit(1, f"pod {state.namespace}/{state.name} was replaced: its UID is {uid}, mine is {state.uid}")
    state = replace(state, uid=uid, recorded=annotations)
    return (state, ReadDevice()) if state.device is None else _compare(state)


def _compare(state: State) -> tuple[State, Action]:
    identity = _identity(state)
    if all(state.recorded.get(key) == value for key, value in identity.items()):
        return _hold(state)
    body = {"metadata": {"uid": state.uid, "annotations": identity}}
    return _calling(state, Call("PATCH", state.call.path, {"timeout": _WRITE_TIMEOUT}, json.dumps(body).encode()))


def _identity(state: State) -> dict[str, str | None]:
    """Return the annotations of the device; None takes away what an earlier device may have left there."""
    if state.device is None:
        raise AssertionError("compared before the device was read")
    minor, mem_mib = state.device.minor, state.device.mem_mib
    return {
        names.RESERVE_FOR_GPU_INDEX: state.device.uuid,
        names.DEVICE_INDEX: None if minor is None else str(minor),
        names.DEVICE_MEMORY: None if mem_mib is None else str(mem_mib),
    }


def _hold(state: State) -> tuple[State, Action]:
    told = ", ".join(f"{key}={value}" for key, value in _identity(state).items() if value is not None)
    return state, Hold(f"pod {state.namespace}/{state.name} holds {told}")


def _refused(state: State, answer: Answer) -> tuple[State, Action]:
    message = f"HTTP {answer.status} {_status_message(answer.body)}".rstrip()
    if answer.status == 429 or answer.status >= 500:
        return _later(state, message, retry_after_s=answer.retry_after_s)
    if answer.status == 409 and not _is_read(state.call):
        return _reread(state, message)
    return state, Exit(1, f"{_failing(state)}: {message}")


def _reread(state: State, message: str) -> tuple[State, Action]:
    """After a conflict: the pod was replaced, or too many others wrote at once. Only reading it tells which."""
    if state.calls_made >= MAX_CALLS:
        return state, Exit(1, f"{_failing(state)}: {message} (gave up after {state.calls_made} calls)")
    return _calling(state, Call("GET", state.call.path))


def _later(state: State, message: str, *, retry_after_s: float = 0.0) -> tuple[State, Action]:
    """Repeat the call after a pause. A patch sent twice says the same thing, so an unknown outcome is harmless."""
    reason = f"{_failing(state)}: {message}"
    if state.calls_made >= MAX_CALLS or retry_after_s > _LONGEST_RETRY_AFTER_S:
        return state, Exit(1, f"{reason} (gave up after {state.calls_made} calls)")
    return state, Wait(max(_pause_s(state), retry_after_s), reason)


def _pause_s(state: State) -> float:
    """Doubling, minus up to half of it by a hash of pod and call.

    Many of these processes start at once after an outage; the hash spreads them without a source of randomness.
    """
    longest = min(_FIRST_PAUSE_S * (1 << (state.calls_made - 1)), _LONGEST_PAUSE_S)
    spread = zlib.crc32(f"{state.namespace}/{state.name}/{state.calls_made}".encode()) / 2**32
    return longest * (1 - spread / 2)


def _failing(state: State) -> str:
    return f"unable to {'get' if _is_read(state.call) else 'patch'} pod {state.namespace}/{state.name}"


def _status_message(body: bytes) -> str:
    """Return the message of a metav1.Status, "" if this is something else."""
    try:
        status: Any = json.loads(body)
    except ValueError:
        return ""
    return str(status.get("message", "")) if isinstance(status, dict) else ""
