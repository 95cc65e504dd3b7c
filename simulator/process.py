"""What runs inside simulated containers: a user's work, or the real reservation process.

A process runs until it returns its exit code, or until its task is cancelled: that is its SIGKILL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio

from kube.client import errors
from kube.client.transport import Transport
from reservation import device as reservation_device
from reservation import steps
from simulator.devices import Device
from simulator.settings import ReservationFault
from wire import names
from wire.core import Pod

#: Pod annotations by which a manifest tells the simulator what its containers do; elsewhere they mean nothing.
RUN_S: Final = "simulator.moorage.dev/run-s"
EXIT_CODE: Final = "simulator.moorage.dev/exit-code"

_CALL_TIMEOUT_S: Final = 10.0
_LONGEST_RUN_S: Final = 10.0**9


class MalformedWork(ValueError):
    """Raised when an annotation for the simulator can't be read; names it, its value and what is allowed."""


def is_reservation(pod: Pod) -> bool:
    """Whether the pod's image is the reservation process."""
    labels = pod.metadata.labels or {}
    in_place = pod.metadata.namespace == names.RESERVATION_NAMESPACE
    return in_place and labels.get(names.APP_LABEL) == names.RESERVATION_APP


def work_of(pod: Pod) -> tuple[float | None, int]:
    """Return how long the pod's containers run (None: until they are stopped) and with what code they end."""
    annotations = pod.metadata.annotations or {}
    return _seconds(annotations.get(RUN_S)), _code(annotations.get(EXIT_CODE, "0"))


async def work(run_s: float | None, exit_code: int) -> int:
    """Run a user's container."""
    if run_s is None:
        await anyio.sleep_forever()
    else:
        await anyio.sleep(run_s)
    return exit_code


async def reserve(
    env: Mapping[str, str], devices: Sequence[Device], *, transport: Transport, fault: Callable[[], ReservationFault]
) -> int:
    """Run the real reservation process (reservation/steps.py) on the devices that its container sees."""
    state, action = steps.start(env)
    while not isinstance(action, steps.Exit):
        state, action = steps.step(state, await _carry_out(action, devices, transport, fault()))
    return action.code


async def _carry_out(
    action: steps.Action, devices: Sequence[Device], transport: Transport, fault: ReservationFault
) -> steps.Event:
    match action:
        case steps.Call():
            return await _call(action, transport)
        case steps.ReadDevice():
            return await _read(devices, fault)
        case steps.Wait(seconds=seconds):
            await anyio.sleep(seconds)
            return steps.Waited()
        case steps.Hold():
            await anyio.sleep_forever()
        case steps.Exit():
            pass
    raise AssertionError("nothing to carry out after Exit")


async def _call(call: steps.Call, transport: Transport) -> steps.Event:
    content_type = steps.MERGE_PATCH if call.body is not None else "application/json"
    try:
        with anyio.fail_after(_CALL_TIMEOUT_S):
            response = await transport.request(
                call.method,
                call.path,
                query=call.query,
                body=call.body,
                content_type=content_type,
                timeout_s=_CALL_TIMEOUT_S,
            )
    except (errors.Unreachable, TimeoutError) as error:
        return steps.NoAnswer(str(error))
    retry_after = response.headers.get("retry-after", "")
    return steps.Answer(response.status, response.body, float(retry_after) if retry_after.isdigit() else 0.0)


async def _read(
    devices: Sequence[Device], fault: ReservationFault
) -> reservation_device.Device | reservation_device.Unreadable:
    """Play NVML: it shows the devices that the runtime let into the container."""
    if fault.silent:
        await anyio.sleep_forever()
    await anyio.sleep(fault.delay_s)
    if fault.broken:
        return reservation_device.Unreadable(fault.broken)
    if len(devices) != 1:
        return reservation_device.Unreadable(f"found {len(devices)} devices, 1 was expected")
    (device,) = devices
    minor = None if device.is_slice else device.index
    return reservation_device.Device(uuid=fault.lie or device.uuid, minor=minor, mem_mib=device.mem_mib)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LONGEST_RUN_S:
        raise MalformedWork(f"annotation {RUN_S}: {text!r} is not a number of seconds from 0 to {_LONGEST_RUN_S:.0e}")
    return seconds


def _code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 256):
        raise MalformedWork(f"annotation {EXIT_CODE}: {text!r} is not a whole number from 0 to 255")
    return int(text)
