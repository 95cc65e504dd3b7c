"""Slices of a node that does not exist yet, and is to have devices like those of another node. Pure.

A driver publishes the devices of a node once it is there. Until then they are supposed to be those of the node that it
is like, in pools of its own, and free. UUIDs and serial numbers are others, so a selector that names one device by them
takes no copy: NVIDIA's driver publishes ``uuid``, and ``parentUUID`` of a MIG device. Addresses on a bus are copied, as
machines of one kind have the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from scheduler.core.model.devices import DeviceKind, DevicePlace, DeviceRecord, SliceRecord, Value

#: What makes another UUID of one.
_OTHER: Final = "-copy"
#: How names of attributes end whose value one device alone has, in lower case.
_UUIDS: Final = ("uuid", "guid")
_SERIALS: Final = ("serial", "serialnumber")


def like(published: Iterable[SliceRecord], of: str, to: str) -> tuple[SliceRecord, ...]:
    """Return slices of one node (``of``), each as another one (``to``) would have it."""
    slices = tuple(published)
    uuids = frozenset(_uuids(slices))
    return tuple(
        msgspec.structs.replace(
            each,
            name=f"{to}/{each.name}",
            pool=to if each.pool == of else f"{to}/{each.pool}",
            place=_moved(each.place, of, to),
            devices=tuple(_copied(device, of, to, uuids) for device in each.devices),
        )
        for each in slices
    )


def names_one(attribute: str) -> bool:
    """Whether an attribute of this name has another value for each device, wherever it is."""
    return attribute.lower().endswith((*_UUIDS, *_SERIALS))


def _uuids(slices: Iterable[SliceRecord]) -> Iterator[Value]:
    """UUIDs of devices, and of what they are part of. Attributes of other names may repeat them."""
    for each in slices:
        for device in each.devices:
            for name, value in device.kind.attributes:
                if value.kind == "string" and value.value and name.lower().endswith(_UUIDS):
                    yield value


def _moved(place: DevicePlace | None, of: str, to: str) -> DevicePlace | None:
    return DevicePlace(node=to) if place is not None and place.node == of else place


def _copied(device: DeviceRecord, of: str, to: str, uuids: Collection[Value]) -> DeviceRecord:
    return msgspec.structs.replace(device, kind=_renamed(device.kind, uuids), place=_moved(device.place, of, to))


def _renamed(kind: DeviceKind, uuids: Collection[Value]) -> DeviceKind:
    attributes = tuple(
        (name, _other(value) if value in uuids or names_one(name) else value) for name, value in kind.attributes
    )
    return msgspec.structs.replace(kind, attributes=attributes)


def _other(value: Value) -> Value:
    return Value(value.kind, f"{value.value}{_OTHER}") if value.kind == "string" and value.value else value
