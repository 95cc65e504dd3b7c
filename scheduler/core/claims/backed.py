"""What a claim asks for the extended resources of a pod, and which of its requests serves which container.

As kube-scheduler does it: one request for each container and resource, named by their places. An init container that
ends before others start uses devices of containers after it, and what it lacks beyond them is asked for once, for the
init container that lacks most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from gpu.claimedshare import ClaimedShare
from gpu.request import GpuRequest
from scheduler.core.claims.shares import memory_names
from scheduler.core.model import extended_resource
from scheduler.core.model.device_allocation import DeviceResult
from scheduler.core.model.device_need import DeviceAsk, DeviceNeed, DeviceRequest
from scheduler.core.model.extended_resource import SHARE_REQUEST, Backed, ClaimToMake, ExtendedAsk, share_need
from wire import names

#: A pod with more of them gets all by a claim, or none.
MOST_APART: Final = 3


class _Request(NamedTuple):
    name: str
    device_class: str
    number: int


class _Asked(NamedTuple):
    """Requests, and (container, resource, request) in the order in which the status has them."""

    requests: list[_Request]
    mappings: list[extended_resource.Mapping]


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
        extended_resource.Mapping(ask.container, ask.resource, SHARE_REQUEST)
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


def _mapping(ask: ExtendedAsk, request: str) -> extended_resource.Mapping:
    return extended_resource.Mapping(ask.container, ask.resource, request)
