"""Pools of devices: the slices of their newest generation, and whether anything may be taken from them.

A driver replaces the slices of a pool one by one. Until all of a generation are there, the pool gives nothing, as it
might give a device that is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from scheduler.core.filters.requirements import holds
from scheduler.core.model.devices import DevicePlace, DeviceRecord, Draws, PoolId, SliceRecord
from scheduler.core.model.records import NodeRecord

#: Devices that follow each other and have one place.
Run = tuple[DevicePlace, tuple[DeviceRecord, ...]]


class Pool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A pool. ``slices``: those of its newest generation, by name. ``wrong``: why nothing can be taken, "" if it can.

    ``runs``: its devices in order; ``runs_at`` numbers those of one node, ``open_runs`` those that any node may reach.
    ``counters``: what its counter sets have, in nano. ``draws``: what devices draw from them, by name of those that do.
    ``repeated``: names that several devices have; on a node that reaches two of them, nothing can be taken.
    ``has_awaited``: for some of its devices pods have to wait once they are allocated.
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
