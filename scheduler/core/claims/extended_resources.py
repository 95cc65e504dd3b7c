"""What a claim asks for the extended resources of a pod, and which of its requests serves which container.

As kube-scheduler does it: one request for each container and resource, named by their places. An init container that
ends before others start uses devices of containers after it, and what it lacks beyond them is asked for once, for the
init container that lacks most.

A share of a GPU is a part of the memory of a device that several claims may have at once. Memory is in whole bytes
here. A fraction stands for the whole bytes in it, so that parts that add up to a device fit it, and parts that add up
to more do not (docs/design/claims.md, Shares).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from gpu.bound_pod import ClaimedShare
from gpu.request import GpuRequest, MemoryAsk, SharedAsk, charge_nano
from gpu.share import NANO_PER_DEVICE
from scheduler.core.claims.inventory import InventoryView, uuid_of
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
from scheduler.core.model.devices import DeviceKind, DeviceResult
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
    """The capacity that a share asks of a device, in nano by name; None of one that can't be shared."""
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
