"""What nominations charge on a node: their places, less what their victims still hold there.

Per resource and per shared device the charge is ``max(0, places - what victims hold)``. So while the victims are there
nothing is charged twice, and what they leave is kept from everybody but the nominated pods, whose decision takes the
charge of their own nomination off (docs/design/preemption.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Group, Occupancy


class KeptPlace(msgspec.Struct, frozen=True, gc=False):
    """One holder's place on a node. ``devices`` and ``emptied`` as in ``Place`` (model/preemption.py)."""

    pod_uid: str
    demand: Demand
    devices: tuple[PlannedDevice, ...] = ()
    emptied: tuple[str, ...] = ()


class KeptRoom(msgspec.Struct, frozen=True, gc=False):
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
    used: Occupancy, kept: Iterable[KeptRoom], *, pods: Iterable[PodRecord], node: NodeRecord | None, settings: Settings
) -> Occupancy:
    """Add to a node as it was counted what nominations keep there. ``pods`` are those that are bound there."""
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
    room: KeptRoom,
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


def _count_plain(used: Occupancy, room: KeptRoom, bound: Mapping[str, PodRecord]) -> None:
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


def _opened(room: KeptRoom, known: set[str]) -> dict[str, str]:
    """Devices that places open: their groups, each with what the device plugin calls it.

    Such a group is not named before there is a device: else others would join it while a victim has it.
    """
    parts = (part for place in room.places for part in place.devices)
    return {part.group: part.resource for part in parts if part.group not in known}


def _count_devices(used: Occupancy, room: KeptRoom, *, known: set[str]) -> None:
    parts: dict[str, list[tuple[str, PlannedDevice]]] = {}
    for place in room.places:
        for part in place.devices:
            parts.setdefault(part.group, []).append((place.pod_uid, part))
        for group in place.emptied:
            whole = PlannedDevice(group, NANO_PER_DEVICE, compute_percent=PERCENT_PER_DEVICE)
            parts.setdefault(group, []).append((place.pod_uid, whole))
    for key, of_holders in parts.items():
        if key in known:
            _charge(used.groups[key], of_holders, room.victims)


def _charge(group: Group, parts: Sequence[tuple[str, PlannedDevice]], victims: frozenset[str]) -> None:
    """Charge holders with their parts of a device, as far as no victim has them; the first ones have theirs last."""
    held_nano = sum(group.charges.get(uid, 0) for uid in victims)
    held_percent = sum(group.computes.get(uid, 0) for uid in victims)
    for uid, part in parts:
        nano, percent = max(0, part.nano - held_nano), max(0, part.compute_percent - held_percent)
        held_nano, held_percent = max(0, held_nano - part.nano), max(0, held_percent - part.compute_percent)
        if nano or percent:
            before = group.charges.get(uid, 0)
            group.charge(uid, before + nano, mode=part.mode, compute_percent=percent)
