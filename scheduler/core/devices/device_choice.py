"""Which devices of one node a pod gets. Plain Python: the devices of a node are few.

Largest asks first, each on the tightest device that fits (binpack) or the emptiest (spread); a device that is not
shared yet counts as empty, and is opened only if no shared one is preferred. Ties by group id.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec

from gpu.pinning import Identity, Pin
from gpu.request import FractionAsk, SharedAsk, charge_nano
from gpu.reservation import group_id
from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.records import NodeRecord, PodClass
from scheduler.core.model.settings import Strategy
from scheduler.core.nodes.device_sightings import NO_PROSPECT, Prospect
from scheduler.core.nodes.table import Device
from scheduler.core.snapshot.statement import Part, Room

#: Group numbers of one attempt: device indices in the low bits (protocol.md, Identity).
_NUMBERS_PER_ATTEMPT = 64


class DeviceRule(msgspec.Struct, frozen=True, gc=False):
    """Which very devices a pod takes: by UUID, by the index that one of its asks names, and by their tenants.

    Those run in the same ``mode`` or in any, and leave the compute that is asked.

    Nobody knows which device kubelet hands out next. So where devices are named, those will do that are shared already
    and whose reservations said what they are; others are opened only where one of those may come (device_sightings.py),
    and the binder sees whether it did.
    """

    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    mode: str = ""

    def pin(self, ask: SharedAsk) -> Pin:
        """Which devices are named for an ask."""
        return Pin(ask.index, self.uuids, self.not_uuids)

    def names(self, ask: SharedAsk) -> bool:
        """Whether it is said which devices."""
        return not self.pin(ask).is_any

    def names_any(self, asks: tuple[SharedAsk, ...]) -> bool:
        """Whether it is said of one of the asks."""
        return any(self.names(ask) for ask in asks)

    def takes_any(self, ask: SharedAsk) -> bool:
        """Whether every device of the kind will do."""
        return not (self.mode or ask.compute_percent or self.names(ask))

    def suited(self, ask: SharedAsk, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """The same devices in their slots, closed where they won't do."""
        return tuple(dev if self._takes(ask, dev) else _closed(dev) for dev in devices)

    def _takes(self, ask: SharedAsk, dev: Device) -> bool:
        suits = dev.suits(self.mode) and ask.compute_percent <= dev.free_compute_percent
        return suits and (not self.names(ask) or self._is_named(ask, dev))

    def _is_named(self, ask: SharedAsk, dev: Device) -> bool:
        held = dev.reservation
        return held is not None and dev.is_answered and self.pin(ask).takes(Identity(held.uuid, held.index))


ANY_DEVICE = DeviceRule()


def rule_of(cls: PodClass) -> DeviceRule:
    """The rule of a class."""
    return DeviceRule(cls.uuids, cls.not_uuids, cls.mode) if cls.uuids or cls.not_uuids or cls.mode else ANY_DEVICE


def cost_nano(ask: SharedAsk, card_mib: int, node: NodeRecord) -> int | None:
    """What ``ask`` is charged on a card of ``card_mib`` (0: unknown) of ``node``; None if it can't hold it.

    An unknown card is taken for the smallest of the node; if only a larger one holds the ask, the device is charged
    whole, since nobody can tell what else would fit beside it.
    """
    if isinstance(ask, FractionAsk):
        return ask.nano
    if card_mib or ask.mem_mib <= node.smallest_card_mib:
        return charge_nano(ask, card_mib or node.smallest_card_mib)
    return NANO_PER_DEVICE if ask.mem_mib <= node.largest_card_mib else None


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
        resource = node.resource_of(ask.profile)
        of_kind = _of_kind(resource, devices)
        suited = of_kind if rule.takes_any(ask) else rule.suited(ask, of_kind)
        found = _best(ask, suited, node, taken=taken, strategy=strategy)
        nano = cost_nano(ask, 0, node)
        may_come = not rule.names(ask) or (not ask.profile and prospect.may_bring(rule.pin(ask)))
        can_open = room.has(resource) and nano is not None and may_come
        if can_open and nano is not None and (found is None or _opens_rather(devices[found[0]], strategy)):
            parts[number] = Part(None, new_group(resource), nano, rule.mode, resource, ask.compute_percent)
            room.take(resource)
        elif found is not None:
            slot, charged = found
            taken.add(slot)
            parts[number] = Part(slot, devices[slot].group, charged, rule.mode, resource, ask.compute_percent)
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


def _of_kind(resource: str, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """The same devices in their slots, closed where they are of another kind; all are where the node has none."""
    if all(dev.resource == resource for dev in devices):
        return devices
    return tuple(dev if dev.resource == resource else _closed(dev) for dev in devices)


def _closed(dev: Device) -> Device:
    return msgspec.structs.replace(dev, is_open=False)


def _best(
    ask: SharedAsk, devices: tuple[Device, ...], node: NodeRecord, *, taken: set[int], strategy: Strategy
) -> tuple[int, int] | None:
    """Slot of the preferred open device and the charge there."""
    sign = -1 if strategy is Strategy.SPREAD else 1
    found: list[tuple[int, str, int, int]] = []
    for slot, dev in enumerate(devices):
        nano = cost_nano(ask, dev.card_mib, node)
        if slot not in taken and dev.is_open and nano is not None and nano <= dev.free_nano:
            found.append((sign * dev.free_nano, dev.group, slot, nano))
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
