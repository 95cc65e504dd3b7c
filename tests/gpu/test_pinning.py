"""Which devices a pod takes that names an index, UUIDs, or UUIDs that it does not want."""

from __future__ import annotations

import pytest

from gpu.pinning import Identity, Pin, pins
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
