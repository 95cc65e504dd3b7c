"""Which devices of one node a pod gets, of those that hold its shares (device_fit.py). They are few: plain Python.

Largest asks first, each on the device that the score puts first (scores/score.py). A device that is not shared yet is
opened if no shared one holds the ask, or if the score prefers it. Ties by group id.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Protocol

import msgspec

from gpu.request import SharedAsk
from gpu.reservation import group_id
from gpu.share import NANO_PER_DEVICE
from scheduler.core.devices.device_fit import ANY_DEVICE, DeviceFit, DeviceRule, cost_nano
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.device_sightings import NO_PROSPECT, Prospect
from scheduler.core.nodes.table import Device
from scheduler.core.snapshot.statement import Part, Room

#: Group numbers of one attempt: device indices in the low bits (protocol.md, Identity).
_NUMBERS_PER_ATTEMPT = 64


class DeviceOrder(Protocol):
    """Which device of a node comes first, for a share that takes ``nano`` of it; a part of every score."""

    def device_key(self, free_nano: int, nano: int) -> int:
        """A number for a device with so much free, smaller first."""
        ...

    def opens_rather(self, free_nano: int, nano: int) -> bool:
        """Whether opening another device comes before the best shared one, which has so much free."""
        ...


def choose_devices(
    asks: tuple[SharedAsk, ...],
    devices: tuple[Device, ...],
    node: NodeRecord,
    *,
    room: Room,
    order: DeviceOrder,
    new_group: Callable[[str], str],
    rule: DeviceRule = ANY_DEVICE,
    prospect: Prospect = NO_PROSPECT,
) -> tuple[Part, ...] | None:
    """Choose a distinct device for each ask, in the order of the asks; at most ``room`` are opened. None: no way.

    ``prospect``: what opening one could bring, for asks that name devices. ``new_group`` makes the id of a device that
    is opened, by its resource.
    """
    parts: dict[int, Part] = {}
    taken: set[int] = set()
    for number in _largest_first(asks, node):
        ask = asks[number]
        fit = DeviceFit(ask, node, rule)
        found = _best(fit, devices, taken=taken, order=order)
        nano = fit.opened_nano()
        may_come = not rule.names(ask) or (not ask.profile and prospect.may_bring(rule.pin(ask)))
        can_open = room.has(fit.resource) and nano is not None and may_come
        if (
            can_open
            and nano is not None
            and (found is None or order.opens_rather(devices[found[0]].free_nano, found[1]))
        ):
            parts[number] = Part(None, new_group(fit.resource), nano, rule.mode, fit.resource, ask.compute_percent)
            room.take(fit.resource)
        elif found is not None:
            slot, charged = found
            taken.add(slot)
            group = devices[slot].group
            parts[number] = Part(slot, group, charged, rule.mode, fit.resource, ask.compute_percent)
        else:
            return None
    return tuple(parts[number] for number in range(len(asks)))


def choose_answered(
    asks: tuple[SharedAsk, ...],
    devices: tuple[Device, ...],
    node: NodeRecord,
    *,
    order: DeviceOrder,
    rule: DeviceRule = ANY_DEVICE,
) -> tuple[Part, ...] | None:
    """Choose devices that are known already, so that nothing has to be asked of the node; None: no way."""
    known = tuple(dev if dev.is_answered else _closed(dev) for dev in devices)
    none = Room({}, 0)
    return choose_devices(asks, known, node, room=none, order=order, new_group=str, rule=rule)


def without_silent(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """The same devices in their slots, closed where a reservation is there and says nothing."""
    return tuple(_closed(dev) if dev.reservation is not None and not dev.is_answered else dev for dev in devices)


def _closed(dev: Device) -> Device:
    return msgspec.structs.replace(dev, is_open=False)


def _best(
    fit: DeviceFit, devices: tuple[Device, ...], *, taken: set[int], order: DeviceOrder
) -> tuple[int, int] | None:
    """Slot of the preferred open device and the charge there."""
    found = [
        (order.device_key(dev.free_nano, nano), dev.group, slot, nano)
        for slot, dev in enumerate(devices)
        if slot not in taken and (nano := fit.nano_on(dev)) is not None
    ]
    if not found:
        return None
    _, _, slot, nano = min(found)
    return slot, nano


def _largest_first(asks: tuple[SharedAsk, ...], node: NodeRecord) -> list[int]:
    return sorted(range(len(asks)), key=lambda number: -(cost_nano(asks[number], 0, node) or NANO_PER_DEVICE))


def new_groups(node: NodeRecord, pod_uid: str, number: int, known: frozenset[str]) -> Callable[[str], str]:
    """Make ids for devices to be opened, by resource, in order, leaving out those that the node has already."""
    indices = count(number * _NUMBERS_PER_ATTEMPT)

    def new_group(resource: str) -> str:
        return next(group for index in indices if (group := group_id(node.uid, pod_uid, index, resource)) not in known)

    return new_group
