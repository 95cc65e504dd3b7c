"""Which very devices will do for an ask: by its index, and by UUIDs of the pod (rows C11, H12, V8).

The scheduler looks for such a device, and the binder compares the one that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from gpu.request import SharedAsk
from gpu.translation import Cards, Translation


class Identity(msgspec.Struct, frozen=True, gc=False, order=True):
    """A device as its reservation tells it: NVML's UUID, and the N of ``/dev/nvidiaN`` (-1: not told)."""

    uuid: str
    index: int


class Pin(msgspec.Struct, frozen=True, gc=False):
    """Devices that will do: of this index (-1: any), one of ``uuids`` (none said: any), none of ``not_uuids``."""

    index: int = -1
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether every device will do."""
        return self.index < 0 and not self.uuids and not self.not_uuids

    def takes(self, device: Identity) -> bool:
        """Whether this device will do."""
        if self.index not in {-1, device.index} or device.uuid in self.not_uuids:
            return False
        return not self.uuids or device.uuid in self.uuids


ANY_DEVICE: Final = Pin()


#: UUIDs in a hint: a pod may name more, and more devices a node has not.
_MOST_NAMED: Final = 64
_UUID: Final = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9-]{1,76}")
_INDEX: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


def hint(pin: Pin) -> str:
    """Write which devices are wanted, for a device plug-in that may choose one; "" where none is named.

    A UUID counts before the index. What is left out costs a search that takes longer.
    """
    if pin.uuids:
        sound = [uuid for uuid in pin.uuids if _UUID.fullmatch(uuid) and uuid not in pin.not_uuids]
        return ",".join(sound[:_MOST_NAMED])
    return str(pin.index) if pin.index >= 0 else ""


def hinted(text: str) -> Pin:
    """Read a hint. Never raises: what is none names no device."""
    if _INDEX.fullmatch(text):
        return Pin(index=int(text))
    named = text.split(",", _MOST_NAMED)[:_MOST_NAMED]
    return Pin(uuids=tuple(uuid for uuid in named if _UUID.fullmatch(uuid)))


def pin(ask: SharedAsk, cards: Cards) -> Pin:
    """What one ask of a pod wants."""
    return Pin(ask.index, cards.uuids, cards.not_uuids)


def pins(taken: Translation) -> Sequence[Pin]:
    """What each of the devices of a request has to be, in the order of ``request.shared``."""
    return [pin(ask, taken.cards) for ask in taken.request.shared]
