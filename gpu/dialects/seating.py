"""Which containers of a pod may meet on one device, for systems in which each of them asks for itself (X5, M9).

There the shares of two containers are independent: on one device or on two, as it comes. In the normal form a share is
either on a device of its own or on a seat that is named, so independence is a list of whole requests, of which the
scheduler takes the first that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from gpu.effective import effective
from gpu.request import Ask, ContainerKind, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE

#: Most ways in which one pod may be placed: a bound on what a request can cost the scheduler.
MOST_ALTERNATIVES: Final = 64
#: Most asks in all these ways together: a pod that asks for many devices has fewer ways.
MOST_TRIED: Final = 4096
#: Up to so many shares every way to seat them is told (15 for 4); of more, only the closest and the widest.
_EVERY_WAY: Final = 4

_Share = TypeVar("_Share", bound=SharedAsk)

#: A share by the places of its container and of itself.
_Place = tuple[int, int]


def most_ways(asks: int) -> int:
    """In how many ways a pod of so many asks may be placed."""
    return min(MOST_ALTERNATIVES, MOST_TRIED // max(asks, 1))


def seatings(request: GpuRequest, *, together: bool) -> tuple[GpuRequest, ...]:
    """Tell the ways to seat the shares of different containers, in order of preference.

    ``together``: as few devices as possible first, else as many. Shares of one container are always on different
    devices. Shares that name a seat or an index already, and whole devices, stay as they are.
    """
    if len(request.containers) < 2:
        return (request,)
    places = [
        (at, number)
        for at, container in enumerate(request.containers)
        for number, ask in enumerate(container.asks)
        if _is_free(ask)
    ]
    if len({at for at, _ in places}) < 2:
        return (request,)
    ways = _all_ways(len(places)) if len(places) <= _EVERY_WAY else _two_ways(request, places)
    fitting = [way for way in ways if all(_fits(request, block) for block in _blocks(way, places))]
    fitting.sort(key=max, reverse=not together)
    return tuple(_seated(request, way, places) for way in fitting)


def _is_free(ask: Ask) -> bool:
    match ask:
        case FractionAsk(nano=nano, seat="", index=-1):
            return nano < NANO_PER_DEVICE
        case MemoryAsk(seat="", index=-1):
            return True
        case _:
            return False


def _all_ways(count: int) -> list[tuple[int, ...]]:
    """All set partitions of ``count`` shares, each as the numbers of their devices."""
    ways: list[tuple[int, ...]] = [(0,)]
    for _ in range(count - 1):
        ways = [(*way, device) for way in ways for device in range(max(way) + 2)]
    return ways


def _two_ways(request: GpuRequest, places: Sequence[_Place]) -> list[tuple[int, ...]]:
    """Each share on the first device that holds it, and each on a device of its own."""
    blocks: list[list[_Place]] = []
    here: list[set[int]] = []
    way = []
    for place in places:
        at = place[0]
        # Most devices are left out by this alone; hundreds of shares would take seconds without it.
        meetable = (n for n, asking in enumerate(here) if at not in asking)
        device = next((n for n in meetable if _fits(request, [*blocks[n], place])), len(blocks))
        if device == len(blocks):
            blocks.append([])
            here.append(set())
        blocks[device].append(place)
        here[device].add(at)
        way.append(device)
    apart = tuple(range(len(places)))
    return [tuple(way)] if tuple(way) == apart else [tuple(way), apart]


def _blocks(way: Sequence[int], places: Sequence[_Place]) -> Iterator[list[_Place]]:
    for device in range(max(way) + 1):
        yield [place for place, seat in zip(places, way, strict=True) if seat == device]


def _fits(request: GpuRequest, block: Sequence[_Place]) -> bool:
    """Whether one device can hold these, as kubelet counts containers. What memory costs only the card tells.

    Fractions and memory can't be added up, so they don't meet; nor do parts of a card and of a slice.
    """
    if len(block) == 1:
        return True
    seated = [(request.containers[at], request.containers[at].asks[number]) for at, number in block]
    if len({at for at, _ in block}) < len(block) or len({_kind(ask) for _, ask in seated}) > 1:
        return False
    return _in_use(seated, _nano) <= NANO_PER_DEVICE and _in_use(seated, _compute_percent) <= 100


def _kind(ask: Ask) -> tuple[type[Ask], str]:
    return type(ask), ask.profile if isinstance(ask, SharedAsk) else ""


def _in_use(seated: Sequence[tuple[ContainerRequest, Ask]], amount: Callable[[Ask], int]) -> int:
    """The most that is in use at one time."""
    regular = ContainerKind.REGULAR
    return effective(
        (amount(ask) for asking, ask in seated if asking.container.kind is regular),
        ((amount(ask), asking.is_sidecar) for asking, ask in seated if asking.container.kind is not regular),
    )


def _nano(ask: Ask) -> int:
    return ask.nano if isinstance(ask, FractionAsk) else 0


def _compute_percent(ask: Ask) -> int:
    return ask.compute_percent if isinstance(ask, SharedAsk) else 0


def _seated(request: GpuRequest, way: Sequence[int], places: Sequence[_Place]) -> GpuRequest:
    """Name a seat wherever several shares meet: "a", "b" and so on, in the pod's order."""
    names: dict[int, str] = {}
    seats: dict[_Place, str] = {}
    for place, device in zip(places, way, strict=True):
        if way.count(device) > 1:
            seats[place] = names.setdefault(device, seat_name(len(names)))
    return GpuRequest(
        tuple(
            msgspec.structs.replace(
                container,
                asks=tuple(
                    sit(ask, seats[at, number]) if (at, number) in seats and isinstance(ask, SharedAsk) else ask
                    for number, ask in enumerate(container.asks)
                ),
            )
            for at, container in enumerate(request.containers)
        )
    )


def seat_name(number: int) -> str:
    """Name the seats a, b, c and so on; behind z by number."""
    return chr(ord("a") + number) if number < 26 else f"s{number}"


def sit(ask: _Share, seat: str) -> _Share:
    """Put a share on a seat."""
    return msgspec.structs.replace(ask, seat=seat)
