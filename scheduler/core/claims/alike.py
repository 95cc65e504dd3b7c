"""Slices of a node that does not exist yet, and is to have devices like those of another node. Pure.

A driver publishes the devices of a node once it is there. Until then they are supposed to be those of the node that it
is like, in pools of its own, free and with other UUIDs: a selector that names a device by its UUID takes no copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from scheduler.core.claims.inventory import UUID
from scheduler.core.model.device_record import DeviceKind, DevicePlace, DeviceRecord, SliceRecord, Value

#: What makes another UUID of one.
_OTHER: Final = "-copy"


def like(published: Iterable[SliceRecord], of: str, to: str) -> tuple[SliceRecord, ...]:
    """Return slices of one node (``of``), each as another one (``to``) would have it."""
    return tuple(
        msgspec.structs.replace(
            each,
            name=f"{to}/{each.name}",
            pool=to if each.pool == of else f"{to}/{each.pool}",
            place=_moved(each.place, of, to),
            devices=tuple(_copied(device, of, to) for device in each.devices),
        )
        for each in published
    )


def _moved(place: DevicePlace | None, of: str, to: str) -> DevicePlace | None:
    return DevicePlace(node=to) if place is not None and place.node == of else place


def _copied(device: DeviceRecord, of: str, to: str) -> DeviceRecord:
    return msgspec.structs.replace(device, kind=_renamed(device.kind), place=_moved(device.place, of, to))


def _renamed(kind: DeviceKind) -> DeviceKind:
    names = {UUID, f"{kind.driver}/{UUID}"}
    attributes = tuple((name, _other(value) if name in names else value) for name, value in kind.attributes)
    return msgspec.structs.replace(kind, attributes=attributes)


def _other(value: Value) -> Value:
    return Value(value.kind, f"{value.value}{_OTHER}") if value.kind == "string" else value
