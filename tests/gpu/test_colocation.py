from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.colocation import MOST_ALTERNATIVES, seat_name, seatings
from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE

FULL = FractionAsk(NANO_PER_DEVICE)


def part(percent: int, seat: str = "", index: int = -1) -> FractionAsk:
    return FractionAsk(percent * 10_000_000, seat, index)


def request(
    *containers: tuple[Ask, ...], init: tuple[tuple[Ask, ...], ...] = (), is_sidecar: bool = False
) -> GpuRequest:
    regular = [ContainerRequest(ContainerRef(ContainerKind.REGULAR, n), asks) for n, asks in enumerate(containers)]
    before = [ContainerRequest(ContainerRef(ContainerKind.INIT, n), asks, is_sidecar) for n, asks in enumerate(init)]
    return GpuRequest((*regular, *before))


@pytest.mark.parametrize(
    ("asked", "ways"),
    [
        (request((part(30),), (part(40),)), ["a a", "- -"]),
        (request((part(60),), (part(50),)), ["- -"]),
        (request((part(30),), (part(40),), (part(50),)), ["a a -", "a - a", "- a a", "- - -"]),
        (request((FULL, part(50)), (part(30),)), ["- a a", "- - -"]),
        (request((part(30), part(30)), (part(30),)), ["a - a", "- a a", "- - -"]),
        (request((MemoryAsk(5),), (MemoryAsk(7),)), ["a a", "- -"]),
        (request((part(30),), (MemoryAsk(7),)), ["- -"]),
        (request((MemoryAsk(5, compute_percent=60),), (MemoryAsk(7, compute_percent=50),)), ["- -"]),
        (request((MemoryAsk(5, compute_percent=60),), (MemoryAsk(7, compute_percent=40),)), ["a a", "- -"]),
        (request((part(90),), init=((part(90),),)), ["a a", "- -"]),
        (request((part(90),), init=((part(90),),), is_sidecar=True), ["- -"]),
        (request((part(30), part(30))), ["- -"]),
        (request((WholeAsk(),), (part(30),)), ["- -"]),
        (request((part(30, index=1),), (part(40),)), ["- -"]),
        (request((part(30, "x"),), (part(40),)), ["x -"]),
        (GpuRequest(()), [""]),
        (request(*[(part(30),)] * 5), ["a a a b b", "- - - - -"]),
        (request(*[(part(90),)] * 5), ["- - - - -"]),
        # Init containers that end are one after the other; those that go on running are beside all that follow.
        (request(*[(part(20),)] * 4, init=((part(90),), (part(90),))), ["a a a a a a", "- - - - - -"]),
        (request(*[(part(20),)] * 4, init=((part(30),),), is_sidecar=True), ["a a a a -", "- - - - -"]),
        (request((part(70),), *[(part(10),)] * 3, init=((part(60),),), is_sidecar=True), ["a a a a -", "- - - - -"]),
        (request(*[(MemoryAsk(5, compute_percent=40),)] * 5), ["a a b b -", "- - - - -"]),
    ],
)
def test_containers_meet_wherever_one_device_can_hold_them(asked: GpuRequest, ways: list[str]) -> None:
    told = [
        " ".join(getattr(ask, "seat", "") or "-" for container in way.containers for ask in container.asks)
        for way in seatings(asked, together=True)
    ]
    assert told == ways


@pytest.mark.parametrize(("ends", "ways"), [(40, ["a a a a a a", "- - - - - -"]), (41, ["a a a a a -", "- - - - - -"])])
def test_an_init_container_that_ends_is_beside_the_sidecars_before_it(ends: int, ways: list[str]) -> None:
    regular = [ContainerRequest(ContainerRef(ContainerKind.REGULAR, n), (part(10),)) for n in range(4)]
    before = [
        ContainerRequest(ContainerRef(ContainerKind.INIT, 0), (part(60),), True),
        ContainerRequest(ContainerRef(ContainerKind.INIT, 1), (part(ends),)),
    ]
    told = [
        " ".join(getattr(ask, "seat", "") or "-" for container in way.containers for ask in container.asks)
        for way in seatings(GpuRequest((*regular, *before)), together=True)
    ]
    assert told == ways


def test_a_system_that_spreads_prefers_devices_of_their_own() -> None:
    asked = request((part(30),), (part(40),))
    assert seatings(asked, together=False) == tuple(reversed(seatings(asked, together=True)))


def test_seats_beyond_the_alphabet_have_numbers() -> None:
    assert [seat_name(number) for number in (0, 25, 26)] == ["a", "z", "s26"]


ASKS = st.one_of(
    st.integers(1, NANO_PER_DEVICE).map(FractionAsk), st.integers(1, 9).map(MemoryAsk), st.just(WholeAsk())
)


@given(st.lists(st.lists(ASKS, max_size=4).map(tuple), max_size=6), st.booleans())
def test_ways_differ_in_seats_only_and_no_seat_holds_too_much(asks: list[tuple[Ask, ...]], together: bool) -> None:
    asked = request(*asks)
    ways = seatings(asked, together=together)

    assert 1 <= len(ways) <= MOST_ALTERNATIVES
    assert len(set(ways)) == len(ways)
    assert asked in ways
    for way in ways:
        assert len(way.shared) <= len(asked.shared)
        sums: dict[str, int] = {}
        for container in way.containers:
            seats = [ask.seat for ask in container.asks if isinstance(ask, FractionAsk | MemoryAsk) and ask.seat]
            assert len(set(seats)) == len(seats)
            for ask in container.asks:
                if isinstance(ask, FractionAsk) and ask.seat:
                    sums[ask.seat] = sums.get(ask.seat, 0) + ask.nano
        assert all(total <= NANO_PER_DEVICE for total in sums.values())
