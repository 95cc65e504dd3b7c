"""Inventories for tests, and what was allocated from them in short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.core.claims.allocation import allocate
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import Inventory
from scheduler.core.model.device_requests import DeviceNeed
from scheduler.core.model.devices import ClaimAllocation, DeviceClassRecord, DeviceRefusal, DeviceResult, SliceRecord
from scheduler.core.model.records import NodeRecord
from tests.scheduler.core.claims.expressions import Compiler
from tests.scheduler.core.device_objects import DRIVER, device_class, node

N1 = node("n1", rack="r1")


def inventory(*records: SliceRecord | DeviceClassRecord, compiler: Compiler | None = None) -> Inventory:
    """An inventory of these and of a class ``gpu`` that takes every device."""
    made = Inventory(lambda _: None, read_changed=lambda: None, compiler=compiler or Compiler())
    made.classes.put(device_class())
    for record in records:
        if isinstance(record, SliceRecord):
            made.slices.put(record)
        else:
            made.classes.put(record)
    return made


def has(*devices: str, pool: str = "n1") -> list[DeviceResult]:
    """Whole devices of a pool, as a claim has them."""
    return [DeviceResult(request="r", driver=DRIVER, pool=pool, device=name) for name in devices]


def taken(**owners: Iterable[DeviceResult]) -> Taken:
    made = Taken()
    for owner, results in owners.items():
        made.put(owner, results)
    return made


def allocated(
    needs: Sequence[DeviceNeed], made: Inventory, used: Taken | None = None, at: NodeRecord = N1
) -> list[list[str]] | DeviceRefusal:
    """Of each claim its devices in order, ``request=device``."""
    found = allocate(needs, at, made.view(), used or Taken())
    return found if isinstance(found, DeviceRefusal) else [_short(each) for each in found]


def _short(allocation: ClaimAllocation) -> list[str]:
    return [f"{each.request}={each.device}" for each in allocation.results]
