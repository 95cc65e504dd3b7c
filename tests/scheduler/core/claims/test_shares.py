"""What a share asks of a device that several claims may have at once, and what it gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import FractionAsk, MemoryAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.claims.extended_resources import claimed_share, is_sharable, share_of
from scheduler.core.model.devices import DeviceKind
from tests.scheduler.core.claims.world import has, inventory
from tests.scheduler.core.device_objects import DRIVER, device, devices
from wire.quantity import NANO

_GIB = 2**30


def _kind(name: str = "memory", value: str = "80Gi", **more: Any) -> DeviceKind:
    made: dict[str, Any] = {"allowMultipleAllocations": True, **more}
    (record,) = devices("a", device("d0", capacity={name: {"value": value}}, **made)).devices
    return record.kind


@pytest.mark.parametrize(
    ("kind", "ask", "asked"),
    [
        (_kind(), FractionAsk(NANO_PER_DEVICE // 4), {"memory": 20 * _GIB}),
        (_kind(), FractionAsk(NANO_PER_DEVICE), {"memory": 80 * _GIB}),
        (_kind(), MemoryAsk(1), {"memory": 2**20}),
        (_kind(), MemoryAsk(100 * 1024), {"memory": 100 * _GIB}),
        (_kind(value="1Mi"), FractionAsk(1), {"memory": 1}),
        (_kind(f"{DRIVER}/memory"), FractionAsk(NANO_PER_DEVICE // 2), {f"{DRIVER}/memory": 40 * _GIB}),
        (_kind("other.example.com/memory"), MemoryAsk(1), None),
        (_kind("cores"), MemoryAsk(1), None),
        (_kind(value="1023Ki"), MemoryAsk(1), None),
        (_kind(allowMultipleAllocations=False), MemoryAsk(1), None),
    ],
)
def test_a_share_asks_for_memory_by_the_name_of_the_driver(
    kind: DeviceKind, ask: SharedAsk, asked: dict[str, int] | None
) -> None:
    wanted = None if asked is None else {name: amount * NANO for name, amount in asked.items()}
    assert share_of(kind, ask) == wanted
    assert is_sharable(kind) is (asked is not None)


@given(st.lists(st.integers(1, NANO_PER_DEVICE), min_size=1, max_size=20), st.integers(24 * _GIB, 200 * _GIB))
def test_fractions_fit_a_device_exactly_if_their_sum_is_no_more_than_one(parts: list[int], memory: int) -> None:
    kind = _kind(value=str(memory))
    used = sum((share_of(kind, FractionAsk(nano)) or {})["memory"] for nano in parts)
    assert (used <= memory * NANO) is (sum(parts) <= NANO_PER_DEVICE)


@pytest.mark.parametrize(
    ("name", "ask", "nano"),
    [
        ("shared", FractionAsk(NANO_PER_DEVICE // 4), NANO_PER_DEVICE // 4),
        ("shared", MemoryAsk(20 * 1024), NANO_PER_DEVICE // 4),
        ("shared", MemoryAsk(81 * 1024), None),
        ("plain", FractionAsk(NANO_PER_DEVICE // 4), None),
        ("gone", FractionAsk(NANO_PER_DEVICE // 4), None),
    ],
)
def test_a_share_gets_a_part_of_a_device_that_is_there_and_has_the_memory(
    name: str, ask: SharedAsk, nano: int | None
) -> None:
    shared = device("shared", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    view = inventory(devices("n1", shared, device("plain"), pool="n1")).view()
    found = claimed_share(has(name)[0], ask, view)
    assert (None if found is None else (found.device, found.nano, found.mem_mib)) == (
        None if nano is None else (name, nano, 80 * 1024)
    )
