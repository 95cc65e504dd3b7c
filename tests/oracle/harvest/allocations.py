"""Rows of upstream's table of allocations, and Moorage's answers to them.

A row has slices, classes, devices in use and claims for one node; what upstream allocates for them, or why it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from scheduler.core.claims.allocation import allocate
from scheduler.core.claims.cel import compile_selector
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import Inventory
from scheduler.core.convert.devices import device_class_record, slice_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.devices import DeviceRefusal, DeviceResult
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord
from wire.quantity import parse_nano
from wire.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice

#: Features that a scheduler of Kubernetes 1.36 has by default.
_EVERYTHING: Final = {
    *("AdminAccess", "PrioritizedList", "PartitionableDevices", "DeviceTaints", "ConsumableCapacity"),
    "DeviceBindingAndStatus",
}


class InUse(msgspec.Struct, frozen=True):
    """A device that somebody has; of a shared one, what of each capacity."""

    driver: str
    pool: str
    device: str
    shared: bool = False
    consumed: dict[str, str] | None = None


class Row(msgspec.Struct, frozen=True):
    """One row. ``results`` None: nothing was allocated."""

    number: int
    features: dict[str, bool]
    node: dict[str, Any] | None
    classes: tuple[DeviceClass, ...] | None
    slices: tuple[ResourceSlice, ...] | None
    allocated: tuple[InUse, ...] | None
    claims: tuple[ResourceClaim, ...] | None
    results: tuple[AllocationResult, ...] | None
    error: str = ""

    @property
    def lacks(self) -> set[str]:
        """Features that are off in this row although they are on by default: it has another answer with them."""
        return {name for name in _EVERYTHING if not self.features.get(name)}


def rows(path: Path) -> Iterator[Row]:
    """The rows of a file, in order."""
    for number, line in enumerate(path.read_bytes().splitlines()):
        yield msgspec.convert({**msgspec.json.decode(line), "number": number}, Row)


def theirs(row: Row) -> list[list[tuple[str, str]]] | str:
    """Of each claim the (request, device) that it got, sorted; or that it got none."""
    if row.error or ((row.results or ()) == () and row.claims):
        return "none"
    return [sorted((r.request, r.device) for r in each.devices.results or ()) for each in row.results or ()]


def mine(row: Row) -> list[list[tuple[str, str]]] | str:
    """The same as Moorage allocates; or why it does not."""
    inventory = Inventory(lambda _: None, read_changed=lambda: None, compiler=compile_selector)
    # Names of slices are no matter there, and repeat.
    listed = (msgspec.structs.replace(slice_record(each), name=f"{at:03}") for at, each in enumerate(row.slices or ()))
    inventory.slices.replace(listed)
    inventory.classes.replace(device_class_record(each) for each in row.classes or ())
    taken = Taken()
    for number, each in enumerate(row.allocated or ()):
        taken.put(str(number), [_in_use(each)])
    records = [resource_claim_record(each) for each in row.claims or ()]
    if any(record.need is None for record in records):
        return "; ".join(record.unsupported for record in records if record.need is None)
    found = allocate([each.need for each in records if each.need is not None], _node(row), inventory.view(), taken)
    if isinstance(found, DeviceRefusal):
        return f"{found.code.name} {found.detail}"
    return [sorted((r.request, r.device) for r in each.results) for each in found]


def _in_use(each: InUse) -> DeviceResult:
    part = tuple(sorted((name, parse_nano(amount)) for name, amount in (each.consumed or {}).items()))
    return DeviceResult(
        request="r", driver=each.driver, pool=each.pool, device=each.device, consumed=part if each.shared else None
    )


def _node(row: Row) -> NodeRecord:
    meta = (row.node or {}).get("metadata", {})
    return NodeRecord(
        name=meta.get("name", ""),
        uid="",
        labels=meta.get("labels") or {},
        taints=(),
        is_ready=True,
        is_cordoned=False,
        capacity=Demand(),
        pods=110,
    )
