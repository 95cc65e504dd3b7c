"""Why an attempt failed, as data. The scheduler reads it from the fence and chooses otherwise; people read the text."""

from __future__ import annotations

import msgspec

from gpu.cause import Cause
from gpu.handover import PlannedDevice


class Failure(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``detail`` names what it was about (a group, a reservation pod, the server's words)."""

    cause: Cause
    detail: str = ""


def smaller_than_asked(device: PlannedDevice, card_mib: int) -> Failure:
    """Return the failure of a card that holds less than was asked of it."""
    return Failure(cause=Cause.CARD_TOO_SMALL, detail=f"{device.mem_mib} MiB asked, the card has {card_mib} MiB")
