"""Which devices a pod takes that names an index, UUIDs, or UUIDs that it does not want."""

from __future__ import annotations

import pytest

from gpu.pinning import Identity, Pin, hint, hinted, pins
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk
from gpu.translation import Cards, Translation


@pytest.mark.parametrize(
    ("pin", "is_taken"),
    [
        (Pin(), True),
        (Pin(index=1), True),
        (Pin(index=0), False),
        (Pin(uuids=("GPU-a", "GPU-b")), True),
        (Pin(uuids=("GPU-b",)), False),
        (Pin(not_uuids=("GPU-b",)), True),
        (Pin(not_uuids=("GPU-a",)), False),
        (Pin(index=1, uuids=("GPU-a",), not_uuids=("GPU-a",)), False),
        (Pin(index=0, uuids=("GPU-a",)), False),
    ],
)
def test_a_device_is_taken_if_index_uuids_and_exclusions_allow_it(pin: Pin, is_taken: bool) -> None:
    assert pin.takes(Identity("GPU-a", 1)) is is_taken


@pytest.mark.parametrize(
    ("pin", "is_any"),
    [
        (Pin(), True),
        (Pin(index=0), False),
        (Pin(uuids=("GPU-a",)), False),
        (Pin(not_uuids=("GPU-a",)), False),
    ],
)
def test_every_device_will_do_where_nothing_is_said(pin: Pin, is_any: bool) -> None:
    assert pin.is_any is is_any


def test_each_device_of_a_request_has_its_own_index_and_the_uuids_of_the_pod() -> None:
    asks = (FractionAsk(1, index=3), MemoryAsk(1))
    request = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), asks),))
    cards = Cards(uuids=("GPU-a", "GPU-b"), not_uuids=("GPU-b",))
    assert pins(Translation(dialect="hami", request=request, cards=cards)) == [
        Pin(3, ("GPU-a", "GPU-b"), ("GPU-b",)),
        Pin(-1, ("GPU-a", "GPU-b"), ("GPU-b",)),
    ]


@pytest.mark.parametrize(
    ("pin", "text"),
    [
        (Pin(), ""),
        (Pin(not_uuids=("GPU-a",)), ""),
        (Pin(index=0), "0"),
        (Pin(index=3, uuids=("GPU-a",)), "GPU-a"),
        (Pin(uuids=("GPU-a", "MIG-b")), "GPU-a,MIG-b"),
        (Pin(uuids=("GPU-a", "GPU-b"), not_uuids=("GPU-a",)), "GPU-b"),
        (Pin(uuids=("not one", "GPU-a")), "GPU-a"),
        (Pin(uuids=tuple(f"GPU-{number}" for number in range(100))), ",".join(f"GPU-{each}" for each in range(64))),
    ],
)
def test_a_hint_names_what_is_wanted_and_is_read_as_it_was_written(pin: Pin, text: str) -> None:
    assert hint(pin) == text
    assert hint(hinted(text)) == text


@pytest.mark.parametrize(
    "text", ["", "x", "GPU-a/../b", "-1", "12345", "\u0663", "GPU-" + "a" * 100_000, "," * 100_000]
)
def test_what_is_no_hint_names_no_device(text: str) -> None:
    assert hinted(text).is_any
