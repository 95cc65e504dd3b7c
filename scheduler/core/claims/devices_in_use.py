"""Which devices are in use: those of claims that are allocated, and of claims on their way.

Each claim has what it has once, by its UID, whether that was decided here or seen on the API server. After two
schedulers wrote at once claims may clash: the API server lets two claims have one device, or more of a shared one, or
of a pool's counters, than there is. Who looks after a write finds the others here; which of them gives back is not
decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from scheduler.core.claims.inventory import InventoryView
from scheduler.core.claims.pools import Pool
from scheduler.core.model.devices import DeviceId, DeviceResult, PoolId

#: Amounts in nano by capacity.
Amounts = Mapping[str, int]
_NOBODY: Final[tuple[str, ...]] = ()
_NOTHING: Final[Amounts] = {}
#: Stands for the owner of a device that no claim has.
_HELD: Final = "held"
_UNUSED_STAMP: Final = object()


class _PoolUse:
    """What of one pool is in use: owners of whole devices, and of shared ones with the sums of their parts.

    ``stamp`` is another one after each change.
    """

    __slots__ = ("parts", "stamp", "sums", "whole")

    def __init__(self) -> None:
        self.stamp: object = object()
        self.whole: dict[str, tuple[str, ...]] = {}
        self.parts: dict[str, tuple[str, ...]] = {}
        self.sums: dict[str, dict[str, int]] = {}

    def copy(self) -> _PoolUse:
        made = _PoolUse()
        made.whole, made.parts, made.sums = dict(self.whole), dict(self.parts), dict(self.sums)
        return made

    def add(self, owner: str, result: DeviceResult) -> None:
        if result.consumed is None:
            self.whole[result.device] = (*self.whole.get(result.device, _NOBODY), owner)
            return
        self.parts[result.device] = (*self.parts.get(result.device, _NOBODY), owner)
        sums = dict(self.sums.get(result.device, _NOTHING))
        for name, nano in result.consumed:
            sums[name] = sums.get(name, 0) + nano
        self.sums[result.device] = sums

    def remove(self, owner: str, result: DeviceResult) -> None:
        owners = self.whole if result.consumed is None else self.parts
        left = list(owners[result.device])
        left.remove(owner)
        if left:
            owners[result.device] = tuple(left)
        else:
            del owners[result.device]
        if result.consumed is None:
            return
        if result.device not in self.parts:
            del self.sums[result.device]
            return
        sums = dict(self.sums[result.device])
        for name, nano in result.consumed:
            sums[name] -= nano
        self.sums[result.device] = sums


class PoolInUse:
    """What of one pool is in use, to read."""

    __slots__ = ("_use",)

    def __init__(self, use: _PoolUse) -> None:
        self._use = use

    def __contains__(self, device: str) -> bool:
        """Whether somebody has a whole device."""
        return device in self._use.whole

    def has_parts(self, device: str) -> bool:
        """Whether somebody has a part of it."""
        return device in self._use.parts

    def owners(self, device: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Claims that have it, whole and in parts."""
        return self._use.whole.get(device, _NOBODY), self._use.parts.get(device, _NOBODY)

    def sums(self, device: str) -> Amounts:
        """What its parts come to, in nano by capacity."""
        return self._use.sums.get(device, _NOTHING)

    def devices(self) -> Iterable[str]:
        """Devices of which anybody has anything, each once: those that are had whole first."""
        return self._use.whole | self._use.parts


_UNUSED: Final = PoolInUse(_PoolUse())


class Taken:
    """Devices in use, by pool. ``fork`` makes another one that starts as this one is and changes apart from it."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[DeviceResult, ...]] = {}
        self._pools: dict[PoolId, _PoolUse] = {}
        #: Pools whose use is this one's alone; others are copied before they change.
        self._own: set[PoolId] = set()

    def fork(self) -> Taken:
        """The same devices, to be changed apart."""
        made = Taken()
        made._of, made._pools = dict(self._of), dict(self._pools)
        self._own = set()
        return made

    def get(self, owner: str) -> tuple[DeviceResult, ...]:
        """What a claim has, devices with admin access left out."""
        return self._of.get(owner, ())

    def put(self, owner: str, results: Iterable[DeviceResult]) -> None:
        """Let a claim have these devices, in place of what it had. Admin access takes none."""
        now = tuple(each for each in results if not each.is_admin)
        if self._of.get(owner, ()) == now:
            return
        self.drop(owner)
        if now:
            self._of[owner] = now
        for result in now:
            self._use(result.id[:2]).add(owner, result)

    def drop(self, owner: str) -> None:
        """A claim has none any more."""
        for result in self._of.pop(owner, ()):
            use = self._use(result.id[:2])
            use.remove(owner, result)
            if not use.whole and not use.parts:
                del self._pools[result.id[:2]]

    @contextmanager
    def with_whole(self, devices: Iterable[DeviceId]) -> Iterator[None]:
        """Count devices as in use for the time of the block, which changes nothing else here.

        Stamps stay as they were.
        """
        by_pool: dict[PoolId, list[str]] = {}
        for driver, pool, device in devices:
            by_pool.setdefault((driver, pool), []).append(device)
        before = {pool_id: self._pools.get(pool_id) for pool_id in by_pool}
        for pool_id, names in by_pool.items():
            use = before[pool_id]
            self._pools[pool_id] = made = _PoolUse() if use is None else use.copy()
            for name in names:
                made.whole[name] = (*made.whole.get(name, _NOBODY), _HELD)
        try:
            yield
        finally:
            for pool_id, use in before.items():
                if use is None:
                    del self._pools[pool_id]
                else:
                    self._pools[pool_id] = use

    def pool(self, pool_id: PoolId) -> PoolInUse:
        """What of a pool is in use."""
        use = self._pools.get(pool_id)
        return _UNUSED if use is None else PoolInUse(use)

    def stamps(self, pools: Iterable[PoolId]) -> tuple[object, ...]:
        """Equal to an earlier answer while nothing has changed in what of these pools is in use."""
        return tuple([_UNUSED_STAMP if (use := self._pools.get(each)) is None else use.stamp for each in pools])

    def _use(self, pool_id: PoolId) -> _PoolUse:
        use = self._pools.get(pool_id)
        if use is None:
            use = _PoolUse()
        elif pool_id not in self._own:
            use = use.copy()
        self._own.add(pool_id)
        use.stamp = object()
        self._pools[pool_id] = use
        return use


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
