"""What the reservation process has to know of its device, and the interface to the source of that.

``reservation/nvml.py`` asks the driver; simulations pass a reader of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Device:
    """The one device of a reservation pod.

    ``uuid`` is NVML's: ``GPU-...``, or ``MIG-...`` of a slice. ``minor`` is the N of ``/dev/nvidiaN``: the same number
    inside and outside of the container, whereas NVML's own index counts what a process can see and is always 0 here.
    ``mem_mib`` is rounded down. None: the driver does not support that question on this device; a slice has no minor
    number of its own.
    """

    uuid: str
    minor: int | None
    mem_mib: int | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The device could not be read; ``message`` says which question failed, in KAI's words (kai-contract 1.7)."""

    message: str


class DeviceReader(Protocol):
    """Says which device this pod got."""

    def read(self) -> Device | Unreadable:
        """Ask once. Never raises for what a broken or absent driver can cause."""
        ...
