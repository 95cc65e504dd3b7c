"""Which devices of one node a pod gets, of those that hold its shares (device_fit.py). They are few: plain Python.

Largest asks first, each on the tightest device that fits (binpack) or the emptiest (spread); a device that is not
shared yet counts as empty, and is opened only if no shared one is preferred. Ties by group id.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec

from gpu.request import SharedAsk
from gpu.reservation import group_id
from gpu.share import NANO_PER_DEVICE
from scheduler.core.devices.device_fit import ANY_DEVICE, DeviceFit, DeviceRule, cost_nano
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import Strategy
from scheduler.core.nodes.device_sightings import NO_PROSPECT, Prospect
from scheduler.core.nodes.table import Device
from scheduler.core.snapshot.statement import Part, Room

#: Group numbers of one attempt: device indices in the low bits (protocol.md, Identity).
_NUMBERS_PER_ATTEMPT = 64


def choose_devices(
    asks: tuple[SharedAsk, ...],
    devices: tuple[Device, ...],
    node: NodeRecord,
    *,
    room: Room,
    strategy: Strategy,
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
        found = _best(fit, devices, taken=taken, strategy=strategy)
        nano = fit.opened_nano()
        may_come = not rule.names(ask) or (not ask.profile and prospect.may_bring(rule.pin(ask)))
        can_open = room.has(fit.resource) and nano is not None and may_come
        if can_open and nano is not None and (found is None or _opens_rather(devices[found[0]], strategy)):
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
    strategy: Strategy,
    rule: DeviceRule = ANY_DEVICE,
) -> tuple[Part, ...] | None:
    """Choose devices that are known already, so that nothing has to be asked of the node; None: no way."""
    known = tuple(dev if dev.is_answered else _closed(dev) for dev in devices)
    none = Room({}, 0)
    return choose_devices(asks, known, node, room=none, strategy=strategy, new_group=str, rule=rule)


def without_silent(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """The same devices in their slots, closed where a reservation is there and says nothing."""
    return tuple(_closed(dev) if dev.reservation is not None and not dev.is_answered else dev for dev in devices)


def _closed(dev: Device) -> Device:
    return msgspec.structs.replace(dev, is_open=False)


def _best(
    fit: DeviceFit, devices: tuple[Device, ...], *, taken: set[int], strategy: Strategy
) -> tuple[int, int] | None:
    """Slot of the preferred open device and the charge there."""
    sign = -1 if strategy is Strategy.SPREAD else 1
    found = [
        (sign * dev.free_nano, dev.group, slot, nano)
        for slot, dev in enumerate(devices)
        if slot not in taken and (nano := fit.nano_on(dev)) is not None
    ]
    if not found:
        return None
    _, _, slot, nano = min(found)
    return slot, nano


def _opens_rather(best: Device, strategy: Strategy) -> bool:
    """Spread opens a device rather than share a used one; an idle one is as empty, and there already."""
    return strategy is Strategy.SPREAD and best.free_nano < NANO_PER_DEVICE


def _largest_first(asks: tuple[SharedAsk, ...], node: NodeRecord) -> list[int]:
    return sorted(range(len(asks)), key=lambda number: -(cost_nano(asks[number], 0, node) or NANO_PER_DEVICE))


def new_groups(node: NodeRecord, pod_uid: str, number: int, known: frozenset[str]) -> Callable[[str], str]:
    """Make ids for devices to be opened, by resource, in order, leaving out those that the node has already."""
    indices = count(number * _NUMBERS_PER_ATTEMPT)

    def new_group(resource: str) -> str:
        return next(group for index in indices if (group := group_id(node.uid, pod_uid, index, resource)) not in known)

    return new_group
