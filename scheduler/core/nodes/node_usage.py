"""What is used of one node, counted from what is on it and from what nominations charge there.

The ledger's rows are this function's results. Nothing is added and taken away over time: a node is counted again when
something on it changes. So a charge can't leak, and late, repeated or reordered events can't add up; a recount costs
some tens of microseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.grant import Charged
from gpu.node_resources import is_device_resource
from gpu.request import charge_nano
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE, memory_from_nano
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.settings import Settings
from wire import names

#: Pods that name more extended resources than this are counted by what their node has.
_MANY_RESOURCES: Final = 16


class Charge(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A placement that is under way: it counts as used. ``devices`` may name groups that nobody has seen yet.

    ``demand`` None: the pod itself is gone, and takes nothing; its devices may still be made known. ``charged``: what
    it was placed for.
    """

    pod_uid: str
    node: str
    demand: Demand | None = Demand()
    devices: tuple[PlannedDevice, ...] = ()
    charged: Charged | None = None


@dataclass(slots=True)
class Group:
    """One shared device: who is charged for how much of it."""

    id: str
    #: Pod UID -> nano. Per pod the largest of what book, grant and placement under way say.
    charges: dict[str, int] = field(default_factory=dict)
    #: The same of the compute that is asked, in percent; pods that ask for none are left out.
    computes: dict[str, int] = field(default_factory=dict)
    #: Reservation pods of this group on the node, terminal ones left out.
    reservations: list[Reservation] = field(default_factory=list)
    has_bound: bool = False
    has_terminal: bool = False
    #: Devices (UUIDs) that bound pods' grants name.
    granted: set[str] = field(default_factory=set)
    #: Modes in which tenants run, those left out that run in any.
    modes: set[str] = field(default_factory=set)
    #: Whether bound pods of other groups use the device that its reservation holds.
    is_claimed: bool = False
    #: Of which kind its device is, as the vendor's plugin calls it: what its reservation asks or will ask.
    resource: str = names.GPU_RESOURCE

    @property
    def reservation(self) -> Reservation | None:
        """The reservation that stands for the device, if it is clear which one."""
        return self.reservations[0] if len(self.reservations) == 1 else None

    @property
    def free_nano(self) -> int:
        """What is left of the device; never below zero, even if others charged more."""
        return max(0, NANO_PER_DEVICE - sum(self.charges.values()))

    @property
    def free_compute_percent(self) -> int:
        """Compute that nobody asks yet; never below zero."""
        return max(0, PERCENT_PER_DEVICE - sum(self.computes.values()))

    @property
    def devices(self) -> int:
        """Devices that are out of the device plugin's hands: one per reservation, one where only charges are seen."""
        return max(len(self.reservations), 1 if self.charges else 0)

    @property
    def is_open(self) -> bool:
        """Whether a new tenant may be planned here: its reservation takes tenants, or is about to be made."""
        if self.reservation is not None:
            return self.reservation.is_joinable and bool(self.id) and not self.is_contended
        return not self.reservations and not self.has_bound and not self.has_terminal

    @property
    def is_contradicted(self) -> bool:
        """Whether its reservation names another device than its tenants were given: no new tenants then."""
        told = self.reservation.uuid if self.reservation else ""
        return bool(told) and bool(self.granted - {told})

    @property
    def is_contended(self) -> bool:
        """Whether pods use a device that their reservation lost: the one that it holds now, or another one."""
        return self.is_claimed or self.is_contradicted

    @property
    def is_idle(self) -> bool:
        """Whether its reservation could be removed now to give the whole device back.

        One that has not told its device may hold one that others use, for their sake (design/healing.md, Guards).
        """
        held = self.reservation
        is_removable = held is not None and held.is_joinable and held.is_told
        return not self.charges and is_removable and not self.is_claimed

    @property
    def is_leaving(self) -> bool:
        """Whether its device comes back without an eviction: a reservation without tenants that is being deleted."""
        return not self.charges and bool(self.reservations) and all(r.deleting for r in self.reservations)

    @property
    def mem_mib(self) -> int:
        """The card's memory as its reservation reported it, 0 if unknown."""
        return self.reservation.mem_mib if self.reservation else 0

    def charge(self, pod_uid: str, nano: int, *, mode: str, compute_percent: int) -> None:
        """Count a pod once, with the largest that anybody says."""
        if mode:
            self.modes.add(mode)
        if compute_percent:
            self.computes[pod_uid] = max(self.computes.get(pod_uid, 0), compute_percent)
        self.charges[pod_uid] = max(self.charges.get(pod_uid, 0), nano)


@dataclass(slots=True)
class Occupancy:
    """Everything used on one node. ``extended`` by resource name; ``gpus`` in whole devices, shared ones included.

    ``kept_gpus``: those of them that nobody has, as nominations keep them for their nominated pods.
    """

    cpu_milli: int = 0
    mem_mib: int = 0
    ephemeral_mib: int = 0
    pods: int = 0
    gpus: int = 0
    kept_gpus: int = 0
    #: Whether claims that were made for pods give GPUs here. A device plugin that comes may offer the same ones:
    #: ``barred_gpus`` of them, all that nobody has, count as used.
    has_claimed_gpus: bool = False
    barred_gpus: int = 0
    extended: dict[str, int] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def take(self, demand: Demand, node: NodeRecord | None, *, is_reservation: bool = False) -> None:
        """Add one pod. The device of a reservation is counted with its group."""
        self.cpu_milli += demand.cpu_milli
        self.mem_mib += demand.mem_mib
        self.ephemeral_mib += demand.ephemeral_mib
        self.pods += 1
        self.gpus += 0 if is_reservation else demand.gpus
        # Asked of every pod of a node at each recount: next to none has any.
        if (demand.claimed or demand.claimed_nano) and demand.has_claimed_gpus:
            self.has_claimed_gpus = True
        for name, amount in _counted(demand, node):
            if not (is_reservation and is_device_resource(name)):
                self.extended[name] = self.extended.get(name, 0) + amount

    def take_devices(self, resource: str, count: int) -> None:
        """Add devices that are out of the device plugin's hands."""
        if resource == names.GPU_RESOURCE:
            self.gpus += count
        else:
            self.extended[resource] = self.extended.get(resource, 0) + count

    def group(self, group_id: str) -> Group:
        """The group, made if it is new."""
        known = self.groups.get(group_id)
        if known is None:
            known = self.groups[group_id] = Group(group_id)
        return known


def occupancy(
    node: NodeRecord | None,
    *,
    pods: Iterable[PodRecord],
    reservations: Iterable[Reservation],
    charges: Iterable[Charge],
    settings: Settings,
) -> Occupancy:
    """Count a node. ``charges`` are of pods that are not bound here; several of one pod count its demand once.

    ``node`` None: objects name a node that is not there (any more); they are counted for the day it comes back.
    """
    used = Occupancy()
    for reservation in reservations:
        _count_reservation(used.group(reservation.group), reservation)
    bound = list(pods)
    for pod in bound:
        used.take(pod.cls.demand, node, is_reservation=pod.is_reservation)
    for pod in bound:
        if pod.held and not pod.is_reservation:
            _count_held(used, pod, smallest_card_mib=node.smallest_card_mib if node else 0)
    _count_charges(used, charges, node)
    if used.groups:
        _count_groups(used, settings)
    if node is not None and used.has_claimed_gpus:
        used.barred_gpus = max(0, node.capacity.gpus - used.gpus)
        used.gpus += used.barred_gpus
    if node is not None and any(pod.has_legacy_slice for pod in bound):
        _count_all_slices(used, node)
    return used


def _count_groups(used: Occupancy, settings: Settings) -> None:
    """Count the devices of groups, and reservations to come."""
    _count_coming_reservations(used, settings)
    for group in used.groups.values():
        if group.devices:
            used.take_devices(group.resource, group.devices)
    for resource, lost in _count_lost(used.groups.values()).items():
        used.take_devices(resource, lost)


def _count_all_slices(used: Occupancy, node: NodeRecord) -> None:
    """Count all MIG slices of a node as taken, as KAI does (contract 14.6).

    A pod there uses one that its device plugin holds to be free: the next slice that it hands out may be that very one.
    """
    for name, amount in node.capacity.extended:
        if name.startswith(names.MIG_RESOURCE_PREFIX):
            used.extended[name] = max(used.extended.get(name, 0), amount)


def _counted(demand: Demand, node: NodeRecord | None) -> Sequence[tuple[str, int]]:
    """The extended resources of a pod that are counted on a node.

    A running pod may name thousands of resources, since kubelet ignores those that its node lacks. Of these only
    those that the node has are looked for, so that a recount does not grow with what a tenant writes.
    """
    asked = demand.extended
    if node is None or len(asked) <= _MANY_RESOURCES:
        return asked
    places = ((name, bisect_left(asked, (name, 0))) for name, _ in node.capacity.extended)
    return [asked[place] for name, place in places if place < len(asked) and asked[place][0] == name]


def _count_reservation(group: Group, reservation: Reservation) -> None:
    """Count a reservation and its book. The book of one that has ended holds what is left to withdraw."""
    group.resource = reservation.resource
    if reservation.is_terminal:
        group.has_terminal = True
    else:
        group.reservations.append(reservation)
    if reservation.book is not None:
        for pod_uid, entry in reservation.book.entries.items():
            group.charge(pod_uid, entry.nano, mode=entry.mode, compute_percent=entry.compute_percent)


def _count_held(used: Occupancy, pod: PodRecord, *, smallest_card_mib: int) -> None:
    for number, held in enumerate(pod.held):
        group = used.group(held.group)
        group.has_bound = True
        if not group.reservations:
            group.resource = held.resource
        if held.uuid:
            group.granted.add(held.uuid)
        nano = held.nano
        if nano is None:
            asks = pod.cls.request.shared
            ask = asks[min(number, len(asks) - 1)] if asks else None
            nano = charge_nano(ask, group.mem_mib or smallest_card_mib) if ask is not None else None
        charged = NANO_PER_DEVICE if nano is None else nano
        group.charge(pod.uid, charged, mode=pod.cls.mode, compute_percent=held.compute_percent)


def _count_lost(groups: Collection[Group]) -> Counter[str]:
    """Devices that tenants use and that no reservation holds, by resource: the device plugin would give them away.

    A pod that got one would meet those tenants. So they are as good as taken, and a reservation that gets one of them
    is joined by nobody, as is each of two that tell one device (protocol.md, A lost or foreign reservation).
    """
    holders: dict[str, list[tuple[Group, Reservation]]] = {}
    for group in groups:
        for held in group.reservations:
            if held.uuid:
                holders.setdefault(held.uuid, []).append((group, held))
    lost: dict[str, str] = {}
    for group in groups:
        if group.is_contradicted:
            lost |= dict.fromkeys(group.granted - holders.keys(), group.resource)
    for uuid, rivals in holders.items():
        is_disputed = sum(not held.deleting for _, held in rivals) > 1
        for group, _ in rivals:
            group.is_claimed |= is_disputed or any(uuid in other.granted for other in groups if other is not group)
    return Counter(lost.values())


def _count_charges(used: Occupancy, charges: Iterable[Charge], node: NodeRecord | None) -> None:
    seen: set[str] = set()
    for charge in charges:
        if charge.demand is not None and charge.pod_uid not in seen:
            used.take(charge.demand, node)
            seen.add(charge.pod_uid)
        for device in charge.devices:
            group = used.group(device.group)
            if not group.reservations:
                group.resource = device.resource
            group.charge(charge.pod_uid, device.nano, mode=device.mode, compute_percent=device.compute_percent)


def _count_coming_reservations(used: Occupancy, settings: Settings) -> None:
    """A group without a reservation pod gets one: its slot and its requests are spoken for."""
    coming = sum(not g.reservations and bool(g.charges) for g in used.groups.values())
    used.pods += coming
    used.cpu_milli += coming * settings.reservation_cpu_milli
    used.mem_mib += coming * settings.reservation_mem_mib


def largest_free_mib(free_nano: int, card_mib: int, smallest_card_mib: int, largest_card_mib: int) -> int:
    """The largest memory ask, in MiB, that what is free of an open device can take.

    ``card_mib`` 0: its memory is unknown, so it is charged as the node's smallest card. An ask that only a larger card
    of the node can hold is charged the whole device, so it fits if that is free.
    """
    if card_mib:
        return memory_from_nano(free_nano, card_mib)
    if free_nano == NANO_PER_DEVICE:
        return largest_card_mib
    return memory_from_nano(free_nano, smallest_card_mib)


class KeptPlace(msgspec.Struct, frozen=True, gc=False):
    """One nominated pod's place on a node. ``devices`` and ``emptied`` as in ``Place`` (model/preemption.py)."""

    pod_uid: str
    demand: Demand
    devices: tuple[PlannedDevice, ...] = ()
    emptied: tuple[str, ...] = ()


class NominatedPlace(msgspec.Struct, frozen=True, gc=False):
    """What one nomination keeps on one node. ``victims``: UIDs of those that have to go from there.

    ``nomination_id``: for the successor of a victim with the victim's UID behind it, so that it can be taken off alone.
    """

    nomination_id: str
    places: tuple[KeptPlace, ...]
    victims: frozenset[str]

    @property
    def is_plain(self) -> bool:
        """Whether no place has a part of a device, waits for a whole one, or asks extended resources."""
        return not any(place.devices or place.emptied or place.demand.extended for place in self.places)

    @property
    def of(self) -> str:
        """The id of the nomination."""
        return self.nomination_id.partition("/")[0]


def count_kept(
    used: Occupancy,
    kept: Iterable[NominatedPlace],
    *,
    pods: Iterable[PodRecord],
    node: NodeRecord | None,
    settings: Settings,
) -> Occupancy:
    """Add to a node as it was counted what nominations keep there. ``pods`` are those that are bound there.

    Places are charged less what their victims still hold there: per resource and per shared device ``max(0, places -
    what victims hold)``. So while the victims are there nothing is charged twice, and what they leave is kept from
    everybody but the nominated pods, whose decision takes the charge of their own nomination off
    (docs/design/preemption.md).
    """
    rooms = [room for room in kept if room.places]
    if not rooms:
        return used
    bound = {pod.uid: pod for pod in pods}
    # All are read before the first is charged: what one keeps is nothing that another's victims hold.
    known = {key for key, group in used.groups.items() if group.devices}
    for room in rooms:
        if room.is_plain:
            _count_plain(used, room, bound)
        else:
            _count_rows(used, room, bound, known=known, node=node, settings=settings)
            _count_devices(used, room, known=known)
    return used


def _count_rows(
    used: Occupancy,
    room: NominatedPlace,
    bound: Mapping[str, PodRecord],
    *,
    known: set[str],
    node: NodeRecord | None,
    settings: Settings,
) -> None:
    places, held = Occupancy(), Occupancy()
    for place in room.places:
        places.take(place.demand, node)
    for resource in _opened(room, known).values():
        places.take_devices(resource, 1)
        places.pods += 1
        places.cpu_milli += settings.reservation_cpu_milli
        places.mem_mib += settings.reservation_mem_mib
    for uid in room.victims & bound.keys():
        held.take(bound[uid].cls.demand, node)
    # A device whose tenants all go is theirs until its reservation is gone.
    held.gpus += len({group for place in room.places for group in place.emptied if group in known})
    used.cpu_milli += max(0, places.cpu_milli - held.cpu_milli)
    used.mem_mib += max(0, places.mem_mib - held.mem_mib)
    used.ephemeral_mib += max(0, places.ephemeral_mib - held.ephemeral_mib)
    used.pods += max(0, places.pods - held.pods)
    kept_gpus = max(0, places.gpus - held.gpus)
    used.gpus += kept_gpus
    used.kept_gpus += kept_gpus
    for name, amount in places.extended.items():
        more = max(0, amount - held.extended.get(name, 0))
        used.extended[name] = used.extended.get(name, 0) + more


def _count_plain(used: Occupancy, room: NominatedPlace, bound: Mapping[str, PodRecord]) -> None:
    """The same for places that ask only what every node has: most do, and a node is counted often."""
    cpu_milli = mem_mib = ephemeral_mib = gpus = 0
    pods = len(room.places)
    for place in room.places:
        asked = place.demand
        cpu_milli, mem_mib = cpu_milli + asked.cpu_milli, mem_mib + asked.mem_mib
        ephemeral_mib, gpus = ephemeral_mib + asked.ephemeral_mib, gpus + asked.gpus
    for uid in room.victims:
        victim = bound.get(uid)
        if victim is not None:
            had = victim.cls.demand
            cpu_milli, mem_mib = cpu_milli - had.cpu_milli, mem_mib - had.mem_mib
            ephemeral_mib, gpus, pods = ephemeral_mib - had.ephemeral_mib, gpus - had.gpus, pods - 1
    used.cpu_milli += max(0, cpu_milli)
    used.mem_mib += max(0, mem_mib)
    used.ephemeral_mib += max(0, ephemeral_mib)
    used.pods += max(0, pods)
    used.gpus += max(0, gpus)
    used.kept_gpus += max(0, gpus)


def _opened(room: NominatedPlace, known: set[str]) -> dict[str, str]:
    """Devices that places open: their groups, each with what the device plugin calls it.

    Such a group is not named before there is a device: else others would join it while a victim has it.
    """
    parts = (part for place in room.places for part in place.devices)
    return {part.group: part.resource for part in parts if part.group not in known}


def _count_devices(used: Occupancy, room: NominatedPlace, *, known: set[str]) -> None:
    parts: dict[str, list[tuple[str, PlannedDevice]]] = {}
    for place in room.places:
        for part in place.devices:
            parts.setdefault(part.group, []).append((place.pod_uid, part))
        for group in place.emptied:
            whole = PlannedDevice(group, NANO_PER_DEVICE, compute_percent=PERCENT_PER_DEVICE)
            parts.setdefault(group, []).append((place.pod_uid, whole))
    for key, of_nominees in parts.items():
        if key in known:
            _charge(used.groups[key], of_nominees, room.victims)


def _charge(group: Group, parts: Sequence[tuple[str, PlannedDevice]], victims: frozenset[str]) -> None:
    """Charge nominated pods with their parts of a device, as far as no victim has them; the first ones last."""
    held_nano = sum(group.charges.get(uid, 0) for uid in victims)
    held_percent = sum(group.computes.get(uid, 0) for uid in victims)
    for uid, part in parts:
        nano, percent = max(0, part.nano - held_nano), max(0, part.compute_percent - held_percent)
        held_nano, held_percent = max(0, held_nano - part.nano), max(0, held_percent - part.compute_percent)
        if nano or percent:
            before = group.charges.get(uid, 0)
            group.charge(uid, before + nano, mode=part.mode, compute_percent=percent)
