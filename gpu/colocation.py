"""Which containers of a pod may meet on one device, for systems in which each of them asks for itself (X5, M9).

There the shares of two containers are independent: on one device or on two, as it comes. In the normal form a share is
either on a device of its own or on a seat that is named, so independence is a list of whole requests, of which the
scheduler takes the first that fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar

import msgspec

from gpu.request import Ask, ContainerKind, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, SharedAsk, effective
from gpu.share import NANO_PER_DEVICE

#: Most ways in which one pod may be placed: a bound on what a request can cost the scheduler.
MOST_ALTERNATIVES: Final = 64
#: Most asks in all these ways together: a pod that asks for many devices has fewer ways.
MOST_TRIED: Final = 4096
#: Up to this number of shares, every way to seat them is listed (15 for 4); of more, only the closest and the widest.
_EVERY_WAY: Final = 4

_Share = TypeVar("_Share", bound=SharedAsk)

#: A share by the places of its container and of itself.
_Place = tuple[int, int]


def most_ways(asks: int) -> int:
    """The number of ways in which a pod with this number of asks may be placed."""
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
    blocks: list[_Block] = []
    way = []
    #: By what is asked: how many of the first devices are full for it and stay so.
    full: dict[Hashable, int] = {}
    for at, number in places:
        asking = request.containers[at]
        ask = asking.asks[number]
        like = (asking.container.kind, asking.is_sidecar, _kind(ask), _nano(ask), _compute_percent(ask))
        device = full.get(like, 0)
        while device < len(blocks) and not blocks[device].has_room(asking, ask):
            device += 1
        full[like] = device
        while device < len(blocks) and not blocks[device].holds(at, asking, ask):
            device += 1
        if device == len(blocks):
            blocks.append(_Block())
        blocks[device].add(at, asking, ask)
        way.append(device)
    apart = tuple(range(len(places)))
    return [tuple(way)] if tuple(way) == apart else [tuple(way), apart]


class _Block:
    """What one device has been given so far, so that one more is judged in a fixed number of steps.

    Shares come in the pod's order: regular containers, then init containers. Each amount is kept as
    (regular, sidecars, peak), as ``effective`` counts them.
    """

    __slots__ = ("_compute", "_kind", "_last", "_nano")

    def __init__(self) -> None:
        self._kind: tuple[type[Ask], str] | None = None
        self._last = -1
        self._nano = self._compute = (0, 0, 0)

    def holds(self, at: int, asking: ContainerRequest, ask: Ask) -> bool:
        """Whether one more share fits beside those that are there: the rules of ``_fits``."""
        return at != self._last and self.has_room(asking, ask)

    def has_room(self, asking: ContainerRequest, ask: Ask) -> bool:
        """Whether another container's share would fit. Once it would not, it never will: devices only fill."""
        return (
            self._kind == _kind(ask)
            and _most(_with_one(self._nano, asking, _nano(ask))) <= NANO_PER_DEVICE
            and _most(_with_one(self._compute, asking, _compute_percent(ask))) <= 100
        )

    def add(self, at: int, asking: ContainerRequest, ask: Ask) -> None:
        """Put one more share here."""
        self._kind, self._last = _kind(ask), at
        self._nano = _with_one(self._nano, asking, _nano(ask))
        self._compute = _with_one(self._compute, asking, _compute_percent(ask))


def _with_one(used: tuple[int, int, int], asking: ContainerRequest, amount: int) -> tuple[int, int, int]:
    regular, sidecars, peak = used
    if asking.container.kind is ContainerKind.REGULAR:
        return regular + amount, sidecars, peak
    return regular, sidecars + (amount if asking.is_sidecar else 0), max(peak, sidecars + amount)


def _most(used: tuple[int, int, int]) -> int:
    regular, sidecars, peak = used
    return max(peak, sidecars + regular)


def _blocks(way: Sequence[int], places: Sequence[_Place]) -> list[list[_Place]]:
    blocks: list[list[_Place]] = [[] for _ in range(max(way) + 1)]
    for place, device in zip(places, way, strict=True):
        blocks[device].append(place)
    return blocks


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
    met = Counter(way)
    names: dict[int, str] = {}
    seats: dict[_Place, str] = {}
    for place, device in zip(places, way, strict=True):
        if met[device] > 1:
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
