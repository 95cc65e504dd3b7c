"""What opening a device of a node could bring, for pods that name devices (docs/design/opening.md).

Nobody knows which device kubelet hands out next. What is known: devices that reservations told since this process
began, those that the node's administrator lists, and, once all of a node's devices were out at one time, that each one
that no reservation held then is with one of the pods that had whole GPUs, or is ill. That stays so until one of these
pods has ended, or the node has more devices to give.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu.container_devices import Identity, Pin
from gpu.reservation import Reservation
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.nodes.node_usage import Occupancy
from scheduler.core.nodes.table import Device
from wire import names


class Prospect(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Devices that may come next: ``known`` ones, and unless ``is_all`` others. ``held``: those that can't.

    ``devices``: how many the node has, ill ones included.
    """

    known: frozenset[Identity] = frozenset()
    is_all: bool = False
    held: frozenset[Identity] = frozenset()
    devices: int = 0

    def may_bring(self, pin: Pin) -> bool:
        """Whether a device that is opened here may be one that will do."""
        if any(pin.takes(device) for device in self.known):
            return True
        if self.is_all or pin.uuids:
            return False
        return pin.index < 0 or self._may_have(pin.index)

    def _may_have(self, index: int) -> bool:
        told = {device.index for device in (*self.known, *self.held)}
        return index < self.devices and index not in told and -1 not in told


#: Nothing is known of what comes: nothing that is named is looked for.
NO_PROSPECT: Final = Prospect(is_all=True)


#: One more for each pod of whole GPUs that came since, at most; of more the oldest are forgotten.
_MOST_INVENTORIES: Final = 8


class _Inventory(msgspec.Struct, frozen=True, gc=False):
    """Once nothing of a node was free: who had whole GPUs (pod UIDs), what reservations held, how many there were."""

    whole: frozenset[str]
    held: frozenset[Identity]
    gpus: int


class Sightings:
    """Devices that were seen, by node."""

    __slots__ = ("_inventories", "_seen")

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, int]] = {}
        #: All that still hold, the newest last.
        self._inventories: dict[str, tuple[_Inventory, ...]] = {}

    def see(self, held: Reservation) -> None:
        """A reservation told which device it holds."""
        if held.is_told and held.resource == names.GPU_RESOURCE:
            self._seen.setdefault(held.node, {})[held.uuid] = held.index

    def forget_node(self, name: str) -> None:
        """A node is gone; what comes under its name is another."""
        self._seen.pop(name, None)
        self._inventories.pop(name, None)

    def count(self, node: NodeRecord, used: Occupancy, pods: Iterable[PodRecord]) -> None:
        """Take a node as it was counted. ``pods``: those that are bound to it."""
        known = self._inventories.get(node.name, ())
        if not known and (not node.capacity.gpus or used.gpus < node.capacity.gpus):
            return
        owners = {pod.uid: pod.cls.demand.gpus for pod in pods if pod.cls.demand.gpus and not pod.is_reservation}
        whole, taken = frozenset(owners), sum(owners.values())
        groups = (group for group in used.groups.values() if group.resource == names.GPU_RESOURCE)
        held = [group.reservation for group in groups if group.devices]
        told = [one for one in held if one is not None and one.is_told]
        kept = [one for one in known if one.whole <= whole and node.capacity.gpus <= one.gpus]
        if len(told) == len(held) and taken + len(told) == used.gpus == node.capacity.gpus:
            counted = _Inventory(whole, frozenset(map(_identity, told)), node.capacity.gpus)
            kept = [*(one for one in kept if one != counted), counted]
        self._inventories[node.name] = tuple(kept[-_MOST_INVENTORIES:])

    def prospect(self, node: NodeRecord, devices: Iterable[Device]) -> Prospect:
        """Say what may come on a node, whose shared devices are these."""
        told = (dev.reservation for dev in devices if dev.is_gpu and dev.reservation and dev.reservation.uuid)
        held = frozenset(map(_identity, told))
        inventories = self._inventories.get(node.name, ())
        known = frozenset(self._known(node))
        if inventories:
            known = frozenset.intersection(*(one.held for one in inventories))
        uuids = {device.uuid for device in held}
        return Prospect(
            known=frozenset(device for device in known if device.uuid not in uuids),
            is_all=bool(inventories),
            held=held,
            devices=node.devices,
        )

    def is_known(self, node: NodeRecord, pin: Pin) -> bool:
        """Whether the node has a device that will do, as far as anybody has ever said."""
        return any(pin.takes(device) for device in self._known(node)) or (
            not pin.uuids and 0 <= pin.index < node.devices
        )

    def _known(self, node: NodeRecord) -> Iterable[Identity]:
        listed = {uuid: index for index, uuid in enumerate(node.uuids)}
        return (Identity(uuid, index) for uuid, index in {**listed, **self._seen.get(node.name, {})}.items())


def _identity(held: Reservation) -> Identity:
    return Identity(held.uuid, held.index)
