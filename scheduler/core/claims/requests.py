"""What requests of claims look for on a node, and what a claim requests for the extended resources of a pod.

Requests have selectors of their own and those of classes. Several claims may have parts of one device at once
(consumable capacity, KEP-5075). All amounts are nano of their unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from gpu.bound_pod import ClaimedShare
from gpu.request import GpuRequest, MemoryAsk, SharedAsk, charge_nano
from gpu.share import NANO_PER_DEVICE
from scheduler.core.claims.devices_in_use import Amounts, PoolInUse, Taken
from scheduler.core.claims.inventory import InventoryView, NodePool, uuid_of
from scheduler.core.claims.selectors import Asked, Cut, named_by_all
from scheduler.core.model import device_requests
from scheduler.core.model.device_requests import (
    SHARE_REQUEST,
    Backed,
    ClaimToMake,
    DeviceAsk,
    DeviceNeed,
    DeviceRequest,
    ExtendedAsk,
    share_need,
)
from scheduler.core.model.devices import (
    Capacity,
    DeviceId,
    DeviceKind,
    DevicePlace,
    DeviceRecord,
    DeviceRefusal,
    DeviceResult,
    Policy,
    RefusalCode,
)
from wire import names
from wire.quantity import NANO

#: What drivers of GPUs call the memory of a device.
MEMORY: Final = "memory"
_MIB: Final = 2**20


def memory_names(driver: str) -> tuple[str, str]:
    """What the memory of a device may be called, with or without the domain of its driver."""
    return MEMORY, f"{driver}/{MEMORY}"


def is_sharable(kind: DeviceKind) -> bool:
    """Whether a device may be had in parts, and says how much memory it has."""
    return kind.is_shared and _memory(kind) is not None


def share_of(kind: DeviceKind, ask: SharedAsk) -> dict[str, int] | None:
    """The capacity that a share asks of a device, in nano by name; None of one that can't be shared.

    A share of a GPU is a part of the memory of a device, in whole bytes. A fraction stands for the whole bytes in it,
    so that parts that add up to a device fit it, and parts that add up to more do not (docs/design/claims.md, Shares).
    """
    found = _memory(kind) if kind.is_shared else None
    if found is None:
        return None
    name, total = found
    part = ask.mem_mib * _MIB if isinstance(ask, MemoryAsk) else max(1, ask.nano * total // NANO_PER_DEVICE)
    return {name: part * NANO}


def claimed_share(result: DeviceResult, ask: SharedAsk, view: InventoryView) -> ClaimedShare | None:
    """What a share gets of the device of a result; None if the device is not there any more."""
    kind = view.kind_of(result.id)
    found = None if kind is None else _memory(kind)
    if kind is None or found is None:
        return None
    mem_mib = found[1] // _MIB
    nano = charge_nano(ask, mem_mib)
    if nano is None:
        return None
    return ClaimedShare(
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        nano=nano,
        mem_mib=mem_mib,
        uuid=uuid_of(kind),
    )


def _memory(kind: DeviceKind) -> tuple[str, int] | None:
    """The name of its memory, as it is written, and how many bytes it has; None if it says none, or less than 1 MiB."""
    capacity = dict(kind.capacity)
    name = next((each for each in memory_names(kind.driver) if each in capacity), None)
    return None if name is None or (had := capacity[name].nano // NANO) < _MIB else (name, had)


#: A pod with more of them gets all by a claim, or none.
MOST_APART: Final = 3


class _Request(NamedTuple):
    name: str
    device_class: str
    number: int


class _Asked(NamedTuple):
    """Requests, and (container, resource, request) in the order in which the status has them."""

    requests: list[_Request]
    mappings: list[device_requests.Mapping]


def backed(asks: Sequence[ExtendedAsk], classes: Mapping[str, str]) -> tuple[Backed, ...]:
    """The ways in which claims give what containers ask for. ``classes``: DeviceClass by extended resource.

    A node may offer some of the resources and lack others, so there is one way for each subset.

    Resources are requested as kube-scheduler does it: one request for each container and resource, named by their
    places. An init container that ends before others start uses devices of containers after it, and what it lacks
    beyond them is asked for once, for the init container that lacks most.
    """
    mapped = sorted({each.resource for each in asks} & classes.keys())
    sizes = range(1 if len(mapped) <= MOST_APART else len(mapped), len(mapped) + 1)
    subsets = (each for size in sizes for each in combinations(mapped, size))
    return tuple(_backed(asks, {name: classes[name] for name in each}) for each in subsets)


def _backed(asks: Sequence[ExtendedAsk], classes: Mapping[str, str]) -> Backed:
    requests, _ = _asked(asks, classes)
    ways = ((DeviceAsk(name=name, device_class=cls, count=count),) for name, cls, count in requests)
    return Backed(tuple(sorted(classes.items())), DeviceNeed(requests=tuple(map(DeviceRequest, ways))))


def backed_share(asks: Sequence[ExtendedAsk], classes: Mapping[str, str], request: GpuRequest) -> tuple[Backed, ...]:
    """How a claim gives a pod its share: by devices of the class that stands for whole GPUs.

    None for a pod that requests other extended resources of a claim as well: its status can name one claim.
    """
    device_class = classes.get(names.GPU_RESOURCE)
    if device_class is None or any(each.resource in classes for each in asks):
        return ()
    return (Backed(((names.GPU_RESOURCE, device_class),), share_need(request, device_class), is_share=True),)


def share_to_make(asks: Sequence[ExtendedAsk], way: Backed, result: DeviceResult, share: ClaimedShare) -> ClaimToMake:
    """The claim for a share: the memory that it takes of the device that was chosen.

    All containers with a share have the one device.
    """
    mappings = (
        device_requests.Mapping(ask.container, ask.resource, SHARE_REQUEST)
        for ask in asks
        if ask.resource == names.GPU_SHARE_RESOURCE
    )
    return ClaimToMake(
        requests=((SHARE_REQUEST, way.classes[0][1], 1),),
        mappings=tuple(mappings),
        capacity=tuple(each for each in result.consumed or () if each[0] in memory_names(result.driver)),
        share=share,
    )


def claim_to_make(asks: Sequence[ExtendedAsk], way: Backed) -> ClaimToMake:
    """The claim for one of these ways."""
    requests, mappings = _asked(asks, dict(way.classes))
    return ClaimToMake(requests=tuple((*each,) for each in requests), mappings=tuple(mappings))


def _asked(asks: Sequence[ExtendedAsk], classes: Mapping[str, str]) -> _Asked:
    found = _Asked([], [])
    for resource in sorted(classes):
        each = _of_resource([ask for ask in asks if ask.resource == resource], classes[resource])
        found.requests.extend(each.requests)
        found.mappings.extend(each.mappings)
    found.requests.sort()
    return found


def _of_resource(asks: Sequence[ExtendedAsk], device_class: str) -> _Asked:
    lasting = [ask for ask in asks if not ask.is_brief]
    requests = [_Request(_name(ask), device_class, ask.amount) for ask in lasting]
    mappings = [_mapping(ask, _name(ask)) for ask in lasting]
    most: _Request | None = None
    for ask in asks:
        if ask.is_brief and (lacks := ask.amount - sum(_served(ask, lasting).values())) > 0:
            extra = _Request(_name(ask), device_class, lacks)
            most = extra if most is None or extra.number > most.number else most
    for ask in asks:
        if ask.is_brief:
            mappings += (_mapping(ask, name) for name in _names(ask, lasting, most))
    return _Asked(requests if most is None else [*requests, most], mappings)


def _names(ask: ExtendedAsk, lasting: Sequence[ExtendedAsk], most: _Request | None) -> Iterator[str]:
    """Requests that serve an init container: of containers after it, and the extra one if those are not enough."""
    served = _served(ask, lasting)
    yield from served
    if most is not None and sum(served.values()) < ask.amount:
        yield most.name


def _served(ask: ExtendedAsk, lasting: Sequence[ExtendedAsk]) -> dict[str, int]:
    """Requests of containers after an init container, as many as it needs, and their counts."""
    served: dict[str, int] = {}
    for later in lasting:
        if later.index >= ask.index and sum(served.values()) < ask.amount:
            served[_name(later)] = later.amount
    return served


def _name(ask: ExtendedAsk) -> str:
    return f"container-{ask.index}-request-{ask.place}"


def _mapping(ask: ExtendedAsk, request: str) -> device_requests.Mapping:
    return device_requests.Mapping(ask.container, ask.resource, request)


def part_of(kind: DeviceKind, asked: Mapping[str, int]) -> dict[str, int] | None:
    """What a request takes of each capacity of a device; None if it has less, or if its policy allows no such amount.

    Asked of a device for one claim, too: there it is the least that the device has to have.

    What a claim asks is rounded up to what the device's policy offers.
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
