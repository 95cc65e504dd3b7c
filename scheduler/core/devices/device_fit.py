"""Whether a share fits a device, and which devices of one node a pod gets of those that hold its shares.

``DeviceFit`` judges one device of one node and is exact. ``free_in_slots``, ``fitting`` and ``cards_hold`` judge the
columns of the table (nodes/table.py). They know the kind of a device and what is free of it, not the mode, the compute
or the name that a pod asks for: they may be too hopeful, and are never too strict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

import msgspec
import numpy as np

from gpu.container_devices import Identity, Pin
from gpu.request import FractionAsk, MemoryAsk, SharedAsk, charge_nano
from gpu.reservation import group_id
from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.device_sightings import NO_PROSPECT, Prospect
from scheduler.core.nodes.ledger import NO_RESOURCE
from scheduler.core.nodes.table import (
    CLOSED,
    GPUS,
    LARGEST_CARD,
    MIG,
    MULTIPLIED,
    Bools,
    Device,
    Int64s,
    Selection,
    Table,
    largest_ask_mib,
)
from scheduler.core.snapshot.statement import Part, Room, Statement


class DeviceRule(msgspec.Struct, frozen=True, gc=False):
    """Which devices a pod takes: by UUID, by the index that one of its asks names, by the mode of their tenants.

    Nobody knows which device kubelet hands out next. So where devices are named, only those fit that are shared
    already and whose reservations said what they are. Others are opened only where a named one may come
    (device_sightings.py), and the binder sees whether it did.
    """

    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    mode: str = ""

    def pin(self, ask: SharedAsk) -> Pin:
        """Which devices are named for an ask."""
        return Pin(ask.index, self.uuids, self.not_uuids)

    def names(self, ask: SharedAsk) -> bool:
        """Whether devices are named for an ask."""
        return not self.pin(ask).is_any

    def names_any(self, asks: tuple[SharedAsk, ...]) -> bool:
        """Whether devices are named for one of the asks."""
        return any(self.names(ask) for ask in asks)

    def takes_any(self, ask: SharedAsk) -> bool:
        """Whether every device of the kind is allowed."""
        return not (self.mode or ask.compute_percent or self.names(ask))

    def takes(self, ask: SharedAsk, dev: Device) -> bool:
        """Whether a device is allowed for an ask, apart from its free memory."""
        if not dev.suits(self.mode) or ask.compute_percent > dev.free_compute_percent:
            return False
        pin = self.pin(ask)
        if pin.is_any:
            return True
        held = dev.reservation
        return held is not None and dev.is_answered and pin.takes(Identity(held.uuid, held.index))


ANY_DEVICE = DeviceRule()


def rule_of(cls: PodClass) -> DeviceRule:
    """The rule of a class."""
    return DeviceRule(cls.uuids, cls.not_uuids, cls.mode) if cls.uuids or cls.not_uuids or cls.mode else ANY_DEVICE


# --- one device ------------------------------------------------------------------------------------------------------
class DeviceFit:
    """Whether devices of one node hold an ask, by the rule of its pod. ``resource``: of the kind that is asked."""

    __slots__ = ("_ask", "_node", "_rule", "_takes_any", "resource")

    def __init__(self, ask: SharedAsk, node: NodeRecord, rule: DeviceRule = ANY_DEVICE) -> None:
        self._ask = ask
        self._node = node
        self._rule = rule
        self._takes_any = rule.takes_any(ask)
        self.resource = node.resource_of(ask.profile)

    def nano_on(self, dev: Device) -> int | None:
        """What the ask is charged on a device in nano-GPU; None if the device does not hold it."""
        if not dev.is_open or dev.resource != self.resource:
            return None
        nano = cost_nano(self._ask, dev.card_mib, self._node)
        if nano is None or nano > dev.free_nano:
            return None
        return nano if self._takes_any or self._rule.takes(self._ask, dev) else None

    def opened_nano(self) -> int | None:
        """What the ask is charged on a device to be opened, of which nothing is known; None if none can hold it."""
        return cost_nano(self._ask, 0, self._node)


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


def largest_fit(like: SharedAsk, dev: Device, node: NodeRecord) -> int:
    """The largest ask in the unit of ``like`` (nano-GPU or MiB) that an open device holds."""
    if isinstance(like, FractionAsk):
        return dev.free_nano
    return largest_ask_mib(dev, node.smallest_card_mib, node.largest_card_mib)


# --- all devices of the table ----------------------------------------------------------------------------------------
def free_in_slots(table: Table, selection: Selection, rows: Int64s | None) -> Int64s:
    """What is free in each slot that takes a tenant of a kind, else CLOSED.

    ``rows``: the resource of its slices at each position; None: cards.
    """
    if rows is None:
        return table.share_nano[:, selection]
    is_ours = table.slice_row[:, selection] == rows[selection]
    free: Int64s = np.where(is_ours, table.slice_nano[:, selection], CLOSED)
    return free


def fitting(ask: SharedAsk, table: Table, selection: Selection, free: Int64s) -> Bools:
    """The slots that hold an ask. ``free``: of its kind (``free_in_slots``)."""
    found: Bools = free >= ask.nano if isinstance(ask, FractionAsk) else table.share_mib[:, selection] >= ask.mem_mib
    return found


def largest_mib(asks: Iterable[SharedAsk]) -> int:
    """The largest amount of memory asked, in MiB; 0 if none is."""
    return max((ask.mem_mib for ask in asks if not isinstance(ask, FractionAsk)), default=0)


def cards_hold(table: Table, selection: Selection, mem_mib: int) -> Bools:
    """The nodes that have a card of so much memory, where a device can be opened for it."""
    found: Bools = table.extra[LARGEST_CARD, selection] >= mem_mib
    return found


NOWHERE = np.iinfo(np.int64).max


class Pool(msgspec.Struct, frozen=True, gc=False):
    """Asks for devices of one kind. ``rows``: of which resource they are at each position; None: cards."""

    profile: str
    asks: tuple[SharedAsk, ...]
    rows: Int64s | None

    def is_there(self, table: Table) -> Bools:
        """At which positions there are such devices to be shared."""
        found: Bools = self.rows != NO_RESOURCE if self.rows is not None else _shares_cards(table)
        return found

    def spare(self, table: Table, selection: Selection, asked: dict[int, int]) -> Int64s:
        """How many of them could be opened, beside what a pod that asks so much (by row) is handed out whole."""
        if self.rows is None:
            return table.free[GPUS, selection] - asked.get(GPUS, 0)
        rows = self.rows[selection]
        whole = np.zeros(len(table.resources), np.int64)
        for row, amount in asked.items():
            whole[row] = amount
        free: Int64s = table.free[:, selection][rows, np.arange(len(rows))]
        return free - whole[rows]

    def left_nano(self, table: Table, selection: Selection) -> Int64s:
        """What is free of those that are shared already."""
        free = free_in_slots(table, selection, self.rows)
        left: Int64s = np.where(free == CLOSED, 0, free).sum(axis=0)
        return left

    def tightest(self, table: Table, selection: Selection) -> tuple[Int64s, Int64s]:
        """Per node: devices that have to be opened, and the sum of nano free on the tightest devices that fit.

        Exact for asks in one unit: this many are at least as large as one of them, and all of these need other devices
        that hold it. A fraction and memory beside each other are looked at as if each were alone, and so is what is
        tightest for unequal asks: that can only be too hopeful, and the choice of devices (placer.py) has the last
        word.
        """
        if all(ask == self.asks[0] for ask in self.asks):
            return self._equal(table, self.asks[0], len(self.asks), selection)
        each: list[tuple[Int64s, Int64s]] = []
        for kind in (FractionAsk, MemoryAsk):
            larger = 0
            counted = Counter(_amount(ask) for ask in self.asks if isinstance(ask, kind))
            for amount, same in sorted(counted.items(), reverse=True):
                each.append(self._equal(table, kind(amount), same, selection, larger=larger))
                larger += same
        most = np.maximum.reduce([opened for opened, _ in each])
        return most, np.add.reduce([tight for _, tight in each])

    def _equal(
        self, table: Table, ask: SharedAsk, count: int, selection: Selection, *, larger: int = 0
    ) -> tuple[Int64s, Int64s]:
        """The same for ``count`` asks, beside which ``larger`` ones want such devices as well."""
        free = free_in_slots(table, selection, self.rows)
        fits = fitting(ask, table, selection, free)
        nodes = free.shape[1]
        if not len(free):
            return np.full(nodes, count + larger, np.int64), np.zeros(nodes, np.int64)
        opened: Int64s = np.maximum(count + larger - fits.sum(axis=0), 0)
        usable = np.where(fits, free, NOWHERE)
        if count == 1:
            tight = usable.min(axis=0)
            tight[tight == NOWHERE] = 0
            return opened, tight
        usable.sort(axis=0)
        usable = usable[:count]
        usable[usable == NOWHERE] = 0
        summed: Int64s = usable.sum(axis=0)
        return opened, summed


def _shares_cards(table: Table) -> Bools:
    found: Bools = (table.extra[MIG] == 0) & (table.extra[MULTIPLIED] == 0)
    return found


def pools_of(asks: tuple[SharedAsk, ...], statement: Statement) -> tuple[Pool, ...]:
    """Sort asks by the kind of device: cards, MIG slices of a profile, or several, each alone.

    Each node has its devices of one kind under one resource, and none of another is ever a substitute for it
    (docs/design/slices.md).
    """
    profiles = dict.fromkeys(ask.profile for ask in asks)
    return tuple(
        Pool(
            profile,
            tuple(ask for ask in asks if ask.profile == profile) if len(profiles) > 1 else asks,
            statement.slice_rows(profile) if profile else None,
        )
        for profile in profiles
    )


def _amount(ask: SharedAsk) -> int:
    return ask.nano if isinstance(ask, FractionAsk) else ask.mem_mib


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

    Devices are chosen for the largest asks first, each on the device that the score puts first (scores/score.py). A
    device that is not shared yet is opened if no shared one holds the ask, or if the score prefers it. Ties by group
    id.
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
