"""What the requests of claims look for on a node: their selectors with those of classes, and the devices there are.

Several claims may have parts of one device at once (consumable capacity, KEP-5075). All amounts are nano of their unit,
and what a claim asks is rounded up to what the device's policy offers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpu.request import SharedAsk
from scheduler.core.claims.devices_in_use import Amounts, PoolInUse, Taken
from scheduler.core.claims.extended_resources import is_sharable, share_of
from scheduler.core.claims.inventory import InventoryView, NodePool
from scheduler.core.claims.selectors import Asked, Cut, named_by_all
from scheduler.core.model.device_requests import DeviceAsk, DeviceNeed
from scheduler.core.model.devices import (
    Capacity,
    DeviceId,
    DeviceKind,
    DevicePlace,
    DeviceRecord,
    DeviceRefusal,
    Policy,
    RefusalCode,
)
from wire.quantity import NANO


def part_of(kind: DeviceKind, asked: Mapping[str, int]) -> dict[str, int] | None:
    """What a request takes of each capacity of a device; None if it has less, or if its policy allows no such amount.

    Asked of a device for one claim, too: there it is the least that the device has to have.
    """
    had = dict(kind.capacity)
    if not asked.keys() <= had.keys():
        return None
    part = {name: _amount(capacity, asked.get(name)) for name, capacity in had.items()}
    if any(part[name] > capacity.nano or _is_refused(part[name], capacity.policy) for name, capacity in had.items()):
        return None
    return part


def _amount(capacity: Capacity, asked: int | None) -> int:
    policy = capacity.policy
    if asked is None:
        return capacity.nano if policy is None or policy.default_nano is None else policy.default_nano
    if policy is None:
        return asked
    if policy.least_nano is not None:
        return _rounded_up(asked, policy.least_nano, policy.step_nano)
    return next((each for each in policy.values_nano if asked <= each), asked)


def _rounded_up(asked: int, least: int, step: int | None) -> int:
    """To the least amount, and from there in steps of whole units."""
    if asked < least:
        return least
    if not step:
        return asked
    base, width = -(-least // NANO), -(-step // NANO)
    return (base + -(-(-(-asked // NANO) - base) // width) * width) * NANO


def _is_refused(amount: int, policy: Policy | None) -> bool:
    if policy is None or amount == policy.default_nano:
        return False
    if policy.most_nano is not None and amount > policy.most_nano:
        return True
    if policy.step_nano and policy.least_nano is not None:
        return bool((-(-amount // NANO) - -(-policy.least_nano // NANO)) % -(-policy.step_nano // NANO))
    return bool(policy.values_nano) and policy.least_nano is None and amount not in policy.values_nano


#: Kubernetes' own limit of devices of a claim (resource/v1).
MOST_RESULTS: Final = 32
#: Devices of a node that are looked at, beside all of them a few times.
MOST_LOOKS: Final = 20_000
_TIMES: Final = 2


def looks_for(devices: int) -> int:
    """How often devices of a node with this number of them are looked at before the search ends."""
    return MOST_LOOKS + _TIMES * devices


class Refused(Exception):
    """Raised where nothing else has to be tried."""

    def __init__(self, code: RefusalCode, detail: str = "") -> None:
        self.refusal = DeviceRefusal(code, detail)


class Candidate(NamedTuple):
    """A device of a pool that the node reaches, and what of the pool is in use."""

    pool: NodePool
    number: int
    device: DeviceRecord
    use: PoolInUse

    @property
    def place(self) -> DevicePlace:
        """From which nodes it can be used."""
        return self.pool.places[self.number]

    @property
    def id(self) -> DeviceId:
        """Driver, pool and name."""
        return (*self.pool.pool.id, self.device.name)

    @property
    def is_taken(self) -> bool:
        """Whether others have the whole device, or parts of one that its driver has since published as a whole one."""
        return self.device.name in self.use or (not self.device.kind.is_shared and self.use.has_parts(self.device.name))


class Asks:
    """What each way of each request looks for: its expressions with those of its class, and all devices for ``All``."""

    def __init__(
        self, needs: Sequence[DeviceNeed], view: InventoryView, pools: Sequence[NodePool], taken: Taken
    ) -> None:
        self._view = view
        self._pools = pools
        self._taken = taken
        self._asked: dict[DeviceAsk, Asked] = {}
        self._all: dict[DeviceAsk, list[Candidate]] = {}
        self._looks_left = looks_for(sum(len(pool.devices) for pool in pools))
        for need in needs:
            for ask in need.asks():
                self._read(ask, need.namespace)
            fewest = sum(min(self.count(way) for way in request.ways) for request in need.requests)
            if fewest > MOST_RESULTS:
                raise Refused(RefusalCode.TOO_MANY_RESULTS, f"{fewest} devices")

    def _read(self, ask: DeviceAsk, namespace: str) -> None:
        record = self._view.device_class(ask.device_class)
        if record is None:
            raise Refused(RefusalCode.NO_CLASS, ask.device_class)
        if record.wrong:
            raise Refused(RefusalCode.UNSUPPORTED, f"DeviceClass {record.name}: {record.wrong}")
        self._asked[ask] = Asked(record.selectors, ask.selectors, namespace if ask.selectors else "")
        if ask.count is not None:
            return
        for pool in self._pools:
            if pool.wrong:
                code = RefusalCode.INCOMPLETE_POOL if pool.pool.is_incomplete else RefusalCode.INVALID_POOL
                raise Refused(code, f"{'/'.join(pool.pool.id)}: {pool.wrong}")
        self._looks_left -= sum(len(pool.devices) for pool in self._pools)
        if self._looks_left < 0:
            raise Refused(RefusalCode.SEARCH_CUT)
        # As upstream: "all" means the devices that have as much as is asked.
        listed = (each for each in devices_of(self._pools, self._taken) if self.takes(ask, each))
        self._all[ask] = [each for each in listed if part_for(ask, each) is not None]

    def takes(self, ask: DeviceAsk, candidate: Candidate) -> bool:
        """Whether the selectors of an ask take a device."""
        return candidate.pool.takes(self._asked[ask], candidate.number)

    def are_whole_only(self) -> bool:
        """Whether a part of a device is asked for, and devices that would do are there, but none that can be shared."""
        wanted = [ask for ask in self._asked if ask.part is not None]
        kinds = [
            each.device.kind for ask in wanted for each in devices_of(self._pools, self._taken) if self.takes(ask, each)
        ]
        return bool(kinds) and not any(map(is_sharable, kinds))

    def all_of(self, ask: DeviceAsk) -> list[Candidate]:
        """Every device for an ask for all."""
        return self._all[ask]

    def count(self, ask: DeviceAsk) -> int:
        """How many devices it needs."""
        return len(self._all[ask]) if ask.count is None else ask.count

    def cut(self) -> Cut:
        """Cuts devices to what any of the expressions names."""
        return Cut(named_by_all({each for asked in self._asked.values() for each in (*asked.of_class, *asked.own)}))


def devices_of(pools: Sequence[NodePool], taken: Taken) -> Iterator[Candidate]:
    """The devices of pools, in order."""
    for pool in pools:
        use = taken.pool(pool.pool.id)
        for number, device in enumerate(pool.devices):
            yield Candidate(pool, number, device, use)


def part_for(ask: DeviceAsk, candidate: Candidate, chosen: Sequence[Amounts] = ()) -> Amounts | None:
    """What an ask takes of a device beside those who have parts of it, and beside parts that were chosen; or None."""
    kind = candidate.device.kind
    asked = dict(ask.capacity) if ask.part is None else _asked_of(ask.part, candidate)
    part = None if asked is None else part_of(kind, asked)
    if part is None or not kind.is_shared:
        return part
    sums = candidate.use.sums(candidate.device.name)
    used = {name: sums.get(name, 0) + sum(each[name] for each in chosen) for name in part}
    return part if all(used[name] + part[name] <= capacity.nano for name, capacity in kind.capacity) else None


def _asked_of(part: SharedAsk, candidate: Candidate) -> dict[str, int] | None:
    """The capacity that a share asks of a device; None if another one of its pool has its name, too.

    What a share counts as follows from the device by its name, and may not be that of the other one.
    """
    if candidate.device.name in candidate.pool.pool.repeated:
        return None
    return share_of(candidate.device.kind, part)
