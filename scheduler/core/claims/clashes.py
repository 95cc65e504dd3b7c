"""Claims that can't all keep what they have: after two schedulers wrote at once.

The API server lets two claims have one device, or more of a shared one, or of a pool's counters, than there is. Who
looks after a write finds the others here; which of them gives back is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.core.claims.inventory import InventoryView
from scheduler.core.claims.pools import Pool
from scheduler.core.claims.taken import PoolInUse, Taken
from scheduler.core.model.device_allocation import DeviceResult


def clashes(owner: str, view: InventoryView, taken: Taken) -> dict[str, DeviceResult]:
    """Claims that have what this one has, too, or more than is there with it; for each the device of this one."""
    found: dict[str, DeviceResult] = {}
    for result in taken.get(owner):
        pool = view.pool(result.id[:2])
        use = taken.pool(result.id[:2])
        for other in _others(result, pool, use):
            if other != owner:
                found.setdefault(other, result)
    return found


def _others(result: DeviceResult, pool: Pool | None, use: PoolInUse) -> Iterator[str]:
    whole, parts = use.owners(result.device)
    yield from whole
    if result.consumed is None or (pool is not None and _is_exceeded(result.device, pool, use)):
        yield from parts
    if pool is not None and result.device in pool.draws:
        yield from _others_drawing(result.device, pool, use)


def _is_exceeded(device: str, pool: Pool, use: PoolInUse) -> bool:
    """Whether parts of a shared device come to more than it has."""
    record = next((each for _, run in pool.runs for each in run if each.name == device), None)
    sums = use.sums(device)
    return record is not None and any(sums.get(name, 0) > each.nano for name, each in record.kind.capacity)


def _others_drawing(device: str, pool: Pool, use: PoolInUse) -> Iterator[str]:
    """Owners of devices that draw from a counter that this one draws from, and of which more is drawn than it has."""
    drawn: dict[tuple[str, str], int] = {}
    drawing: dict[tuple[str, str], list[str]] = {}
    for each in use.devices():
        for name, amounts in pool.draws.get(each, ()):
            for counter, nano in amounts:
                drawn[name, counter] = drawn.get((name, counter), 0) + nano
                drawing.setdefault((name, counter), []).append(each)
    for name, amounts in pool.draws[device]:
        for counter, _ in amounts:
            if drawn[name, counter] > pool.counters.get(name, {}).get(counter, 0):
                for each in drawing[name, counter]:
                    if each != device:
                        whole, parts = use.owners(each)
                        yield from (*whole, *parts)
