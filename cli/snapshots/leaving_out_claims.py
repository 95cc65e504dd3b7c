"""What a snapshot keeps of ResourceClaims, ResourceSlices and DeviceClasses: all but parameters of drivers.

No decision reads these parameters, and a driver may take anything in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from wire.core import Condition
from wire.resource import (
    AllocatedDeviceStatus,
    AllocationResult,
    Device,
    DeviceClass,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)

#: Stands for amounts of nodes that a device maps to: that there are any keeps it from everybody.
_SOMETHING: Final[dict[str, Any]] = {"left": "out"}
_replace: Final = msgspec.structs.replace


def _claim(claim: ResourceClaim) -> ResourceClaim:
    asked, status = claim.spec.devices, claim.status
    return ResourceClaim(
        metadata=claim.metadata,
        spec=_replace(claim.spec, devices=_replace(asked, config=None)),
        status=ResourceClaimStatus(
            allocation=None if status.allocation is None else _allocation(status.allocation),
            reserved_for=status.reserved_for,
            devices=[_device_status(each) for each in status.devices or ()] or None,
        ),
    )


def _allocation(allocation: AllocationResult) -> AllocationResult:
    return _replace(allocation, devices=_replace(allocation.devices, config=None))


def _device_status(status: AllocatedDeviceStatus) -> AllocatedDeviceStatus:
    conditions = [Condition(type=each.type, status=each.status) for each in status.conditions or ()]
    return _replace(status, conditions=conditions or None)


def _slice(published: ResourceSlice) -> ResourceSlice:
    devices = [_device(each) for each in published.spec.devices or ()] or None
    return ResourceSlice(metadata=published.metadata, spec=_replace(published.spec, devices=devices))


def _device(device: Device) -> Device:
    if not device.node_allocatable_resource_mappings:
        return device
    return _replace(device, node_allocatable_resource_mappings=_SOMETHING)


def _class(device_class: DeviceClass) -> DeviceClass:
    return DeviceClass(metadata=device_class.metadata, spec=_replace(device_class.spec, config=None))


KEEP: Final[Mapping[type, Callable[[Any], Any]]] = {ResourceClaim: _claim, ResourceSlice: _slice, DeviceClass: _class}
