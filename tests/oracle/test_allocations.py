"""Upstream's own table of allocations, given to Moorage row by row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import pytest

from tests.oracle.harvest.allocations import Row, mine, rows, theirs
from tools.kubeoracle.harvest import making_allocations
from wire.resource import Device, DeviceSubRequest, ExactDeviceRequest

pytestmark = pytest.mark.oracle


def test_rows_of_upstreams_table_have_the_same_answers() -> None:
    left_out: Counter[str] = Counter()
    compared, different = 0, []
    for row in rows(making_allocations.ensure()):
        if reason := _left_out(row):
            left_out[reason] += 1
            continue
        compared += 1
        found, expected = mine(row), theirs(row)
        if _requests(found) != _requests(expected):
            different.append((row.claims, expected, row.error, found))
    assert not different
    assert compared > 140
    # The list may only get shorter.
    assert dict(left_out) == _LEFT_OUT


def _requests(answer: list[list[tuple[str, str]]] | str) -> object:
    """How many devices each request has; which of them is a matter of order."""
    return "none" if isinstance(answer, str) else [Counter(request for request, _ in claim) for claim in answer]


_LEFT_OUT = {"devices of an older generation are given to nobody": 3, "it is about a feature that is off": 12}


def _left_out(row: Row) -> str:
    """Why a row is not compared."""
    if row.lacks & set(_used(row)):
        return "it is about a feature that is off"
    if _has_older_generation(row):
        return "devices of an older generation are given to nobody"
    return ""


def _devices(row: Row) -> Iterator[Device]:
    for each in row.slices or ():
        yield from each.spec.devices or ()


def _used(row: Row) -> Iterator[str]:
    """Features that a row is about."""
    for each in row.slices or ():
        if each.spec.per_device_node_selection or each.spec.shared_counters:
            yield "PartitionableDevices"
    for device in _devices(row):
        yield from _named(("DeviceTaints", device.taints), ("PartitionableDevices", device.consumes_counters))
        yield from _named(("ConsumableCapacity", device.allow_multiple_allocations))
        yield from _named(("DeviceBindingAndStatus", device.binding_conditions))
    for ask in _asks(row):
        yield from _named(("ConsumableCapacity", ask.capacity))
        if isinstance(ask, ExactDeviceRequest):
            yield from _named(("AdminAccess", ask.admin_access))
        else:
            yield "PrioritizedList"


def _named(*features: tuple[str, object]) -> Iterable[str]:
    return [name for name, value in features if value]


def _asks(row: Row) -> Iterator[ExactDeviceRequest | DeviceSubRequest]:
    for claim in row.claims or ():
        for request in claim.spec.devices.requests or ():
            yield from [request.exactly] if request.exactly is not None else request.first_available or ()


def _has_older_generation(row: Row) -> bool:
    """Whether there are two generations of a pool, of which upstream takes the older one where all of it is there."""
    generations: dict[tuple[str, str], set[int]] = defaultdict(set)
    for each in row.slices or ():
        generations[each.spec.driver, each.spec.pool.name].add(each.spec.pool.generation)
    return any(len(each) > 1 for each in generations.values()) and theirs(row) != "none"
