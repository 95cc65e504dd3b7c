"""Pools of devices: the slices of their newest generation, and those that a node which does not exist yet may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from scheduler.core.filters.node_affinity import holds
from scheduler.core.model.devices import DeviceKind, DevicePlace, DeviceRecord, Draws, PoolId, SliceRecord, Value
from scheduler.core.model.records import NodeRecord

#: Devices that follow each other and have one place.
Run = tuple[DevicePlace, tuple[DeviceRecord, ...]]


class Pool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A pool. ``slices``: those of its newest generation, by name. ``wrong``: why nothing can be taken, "" if it can.

    ``runs``: its devices in order; ``runs_at`` numbers those of one node, ``open_runs`` those that any node may reach.
    ``counters``: what its counter sets have, in nano. ``draws``: what devices draw from them, by name of those that do.
    ``repeated``: names that several devices have; on a node that reaches two of them, nothing can be taken.
    ``has_awaited``: for some of its devices pods have to wait once they are allocated.

    A driver replaces the slices of a pool one by one. Until all of a generation are known, the pool gives nothing, as
    it might give a device that is gone.
    """

    id: PoolId
    slices: tuple[SliceRecord, ...]
    wrong: str = ""
    is_incomplete: bool = False
    runs: tuple[Run, ...] = ()
    runs_at: Mapping[str, Sequence[int]] = {}
    open_runs: tuple[int, ...] = ()
    counters: Mapping[str, Mapping[str, int]] = {}
    draws: Mapping[str, Draws] = {}
    repeated: frozenset[str] = frozenset()
    has_awaited: bool = False

    def reached(self, node: NodeRecord) -> list[Run]:
        """What a node reaches of it."""
        numbers = [*self.runs_at.get(node.name, ()), *(at for at in self.open_runs if _reaches(self.runs[at][0], node))]
        return [self.runs[at] for at in sorted(numbers)]


def _reaches(place: DevicePlace, node: NodeRecord) -> bool:
    return place.is_everywhere or any(holds(term, node) for term in place.terms or ())


def make_pool(pool_id: PoolId, slices: Collection[SliceRecord]) -> Pool:
    """Judge the slices of a pool, of any generation."""
    newest = max(each.generation for each in slices)
    current = tuple(sorted((each for each in slices if each.generation == newest), key=lambda each: each.name))
    counters: dict[str, dict[str, int]] = {}
    for each in current:
        for name, amounts in each.counters:
            counters.setdefault(name, dict(amounts))
    missing = _missing(current)
    runs = tuple(_runs(current))
    named = [(place.node, number) for number, (place, _) in enumerate(runs)]
    at: dict[str, list[int]] = {}
    for node, number in named:
        if node:
            at.setdefault(node, []).append(number)
    names = Counter(device.name for _, devices in runs for device in devices)
    return Pool(
        id=pool_id,
        slices=current,
        wrong=missing or _wrong(current, counters),
        is_incomplete=bool(missing),
        runs=runs,
        runs_at=at,
        open_runs=tuple(number for node, number in named if not node),
        counters=counters,
        draws={device.name: device.draws for each in current for device in each.devices if device.draws},
        has_awaited=any(device.awaited for each in current for device in each.devices),
        repeated=frozenset(name for name, count in names.items() if count > 1),
    )


def _runs(slices: Collection[SliceRecord]) -> Iterator[Run]:
    """Devices with their places; those that are nowhere are left out."""
    placed = ((device.place or each.place, device) for each in slices for device in each.devices)
    for place, run in groupby(placed, key=lambda each: each[0]):
        if place is not None:
            yield place, tuple(device for _, device in run)


def _missing(slices: Collection[SliceRecord]) -> str:
    expected = {each.slices for each in slices}
    if expected == {len(slices)}:
        return ""
    return f"{len(slices)} of {' or '.join(map(str, sorted(expected)))} slices are there"


def _wrong(slices: Collection[SliceRecord], counters: Mapping[str, Mapping[str, int]]) -> str:
    for each in slices:
        if each.wrong:
            return f"slice {each.name}: {each.wrong}"
    sets = Counter(name for each in slices for name, _ in each.counters)
    for name, count in sets.items():
        if count > 1:
            return f"counter set {name} is there {count} times"
    for each in slices:
        for device in each.devices:
            for name, amounts in device.draws:
                if not counters.keys() >= {name} or not counters[name].keys() >= {counter for counter, _ in amounts}:
                    return f"device {device.name} draws from a counter of {name} that is not there"
    return ""


#: What makes another UUID of one.
_OTHER: Final = "-copy"
#: How names of attributes end whose value one device alone has, in lower case.
_UUIDS: Final = ("uuid", "guid")
_SERIALS: Final = ("serial", "serialnumber")


def like(published: Iterable[SliceRecord], of: str, to: str) -> tuple[SliceRecord, ...]:
    """Return slices of one node (``of``), each as another one (``to``) would have it.

    A driver publishes the devices of a node once it exists. Until then they are supposed to be those of the node that
    it is like, in pools of its own, and free. UUIDs and serial numbers are others, so a selector that names one device
    by them takes no copy: NVIDIA's driver publishes ``uuid``, and ``parentUUID`` of a MIG device. Addresses on a bus
    are copied, as machines of one kind have the same ones.
    """
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
