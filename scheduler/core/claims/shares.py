"""Shares of GPUs as claims have them: a part of the memory of a device that several claims may have at once.

Memory is in whole bytes here. A fraction stands for the whole bytes in it, so that parts that add up to a device fit
it, and parts that add up to more do not (docs/design/claims.md, Shares).
"""

from __future__ import annotations

from typing import Final

from gpu.claimedshare import ClaimedShare
from gpu.request import MemoryAsk, SharedAsk, charge_nano
from gpu.share import NANO_PER_DEVICE
from scheduler.core.claims.inventory import InventoryView, uuid_of
from scheduler.core.model.device_allocation import DeviceResult
from scheduler.core.model.device_record import DeviceKind
from wire.quantity import NANO

#: What drivers of GPUs call the memory of a device.
MEMORY: Final = "memory"
_MIB: Final = 2**20


def memory_names(driver: str) -> tuple[str, str]:
    """What the memory of a device may be called, with or without the domain of its driver."""
    return MEMORY, f"{driver}/{MEMORY}"


def is_sharable(kind: DeviceKind) -> bool:
    """Whether a device may be had in parts, and says how much memory it has."""
    return kind.is_shared and _memory(kind) is not None


def share_of(kind: DeviceKind, ask: SharedAsk) -> dict[str, int] | None:
    """The capacity that a share asks of a device, in nano by name; None of one that can't be shared."""
    found = _memory(kind) if kind.is_shared else None
    if found is None:
        return None
    name, total = found
    part = ask.mem_mib * _MIB if isinstance(ask, MemoryAsk) else max(1, ask.nano * total // NANO_PER_DEVICE)
    return {name: part * NANO}


def claimed_share(result: DeviceResult, ask: SharedAsk, view: InventoryView) -> ClaimedShare | None:
    """What a share gets of the device of a result; None if the device is not there any more."""
    kind = view.kind_of(result.id)
    found = None if kind is None else _memory(kind)
    if kind is None or found is None:
        return None
    mem_mib = found[1] // _MIB
    nano = charge_nano(ask, mem_mib)
    if nano is None:
        return None
    return ClaimedShare(
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        nano=nano,
        mem_mib=mem_mib,
        uuid=uuid_of(kind),
    )


def _memory(kind: DeviceKind) -> tuple[str, int] | None:
    """The name of its memory, as it is written, and how many bytes it has; None if it says none, or less than 1 MiB."""
    capacity = dict(kind.capacity)
    name = next((each for each in memory_names(kind.driver) if each in capacity), None)
    return None if name is None or (had := capacity[name].nano // NANO) < _MIB else (name, had)
