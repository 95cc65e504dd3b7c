"""Why an attempt failed, as data. The scheduler reads it from the fence and chooses again; people read the text."""

from __future__ import annotations

import msgspec

from gpu.attempts import Cause
from gpu.bind_request import PlannedDevice
from gpu.container_devices import Identity, Pin
from gpu.limits import DRIVER_CAP


class Failure(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``detail`` names what it was about (a group, a reservation pod, the server's words)."""

    cause: Cause
    detail: str = ""


def smaller_than_asked(device: PlannedDevice, card_mib: int) -> Failure:
    """Return the failure of a card that holds less than was asked of it."""
    return Failure(cause=Cause.CARD_TOO_SMALL, detail=f"{device.mem_mib} MiB asked, the device has {card_mib} MiB")


def caps_lost(node: str) -> Failure:
    """Return the failure of a node that lost its word on memory caps by the driver after it was chosen."""
    return Failure(cause=Cause.NOT_ENFORCED, detail=f"node {node} does not say {DRIVER_CAP} any more")


def other_than_asked(pin: Pin, device: Identity) -> Failure:
    """Return the failure of a device that is not one of those that the pod names."""
    said = {
        f"index {pin.index}": pin.index >= 0,
        f"one of {', '.join(pin.uuids)}": bool(pin.uuids),
        f"none of {', '.join(pin.not_uuids)}": bool(pin.not_uuids),
    }
    wanted = " and ".join(words for words, is_said in said.items() if is_said)
    where = f"with index {device.index}" if device.index >= 0 else "of unknown index"
    return Failure(cause=Cause.OTHER_DEVICE, detail=f"{device.uuid} {where} was opened, the pod takes {wanted}")
