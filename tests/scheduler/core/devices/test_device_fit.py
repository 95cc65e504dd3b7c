"""One device and all devices of the table are judged alike, and what is told to be missing is missing."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import FractionAsk, MemoryAsk, SharedAsk
from scheduler.core.devices.device_fit import (
    ANY_DEVICE,
    DeviceFit,
    DeviceRule,
    cards_hold,
    fitting,
    free_in_slots,
    largest_fit,
    largest_mib,
)
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.table import Device, Table
from tests.scheduler.core.objects import NANO, cluster, node, reservation
from wire import names

SLICE = "nvidia.com/mig-1g.10gb"
CARDS = [0, 10_000, 30_000]
EDGES = [0, 1, NANO // 3, NANO // 2, NANO - 1, NANO]

_DEVICES = st.builds(
    Device,
    group=st.just("g"),
    free_nano=st.one_of(st.sampled_from(EDGES), st.integers(0, NANO)),
    card_mib=st.sampled_from(CARDS),
    is_open=st.booleans(),
    resource=st.sampled_from([names.GPU_RESOURCE, SLICE]),
    modes=st.sampled_from([(), ("mps",), ("time-slicing",)]),
    free_compute_percent=st.sampled_from([0, 50, 100]),
)
_ASKS = st.one_of(
    st.builds(
        FractionAsk,
        st.one_of(st.sampled_from(EDGES[1:]), st.integers(1, NANO)),
        profile=st.sampled_from(["", "1g.10gb"]),
    ),
    st.builds(
        MemoryAsk, st.one_of(st.sampled_from([1, 9_999, 10_000, 10_001, 30_000, 30_001]), st.integers(1, 40_000))
    ),
)
_NODES = st.tuples(st.sampled_from(CARDS), st.sampled_from(CARDS)).map(sorted)


def _machine(cards: list[int], *, is_mig: bool = False) -> NodeRecord:
    """A node with cards of these sizes; with MIG slices it shares no cards."""
    smallest, largest = cards if cards[0] else (0, 0)
    made = cluster(node(gpus=8, extended={SLICE: 3} if is_mig else {})).snapshot().ledger.in_order().nodes[0]
    return msgspec.structs.replace(made, smallest_card_mib=smallest, largest_card_mib=largest)


def _table(machine: NodeRecord, devices: tuple[Device, ...]) -> Table:
    table = Table()
    table.add_columns(1)
    table.add_resource(SLICE)
    table.put_devices(0, machine, devices)
    return table


def _in_columns(table: Table, ask: SharedAsk) -> list[bool]:
    rows = np.array([table.resources.index(SLICE)]) if ask.profile else None
    everywhere = slice(None)
    free = free_in_slots(table, everywhere, rows)
    found = fitting(ask, table, everywhere, free)[:, 0].tolist()
    return [*found, *([False] * (len(table.devices[0]) - len(found)))]


@given(cards=_NODES, devices=st.lists(_DEVICES, max_size=4).map(tuple), ask=_ASKS, is_mig=st.booleans())
def test_one_device_and_the_columns_answer_alike(
    cards: list[int], devices: tuple[Device, ...], ask: SharedAsk, *, is_mig: bool
) -> None:
    machine = _machine(cards, is_mig=is_mig or bool(ask.profile))
    fit = DeviceFit(ask, machine)
    assert _in_columns(_table(machine, devices), ask) == [fit.nano_on(dev) is not None for dev in devices]


@given(
    _NODES,
    st.lists(_DEVICES, max_size=4).map(tuple),
    _ASKS,
    st.sampled_from([0, 50, 100]),
    st.sampled_from(["", "mps"]),
    st.sampled_from([(), ("GPU-1",)]),
)
def test_columns_are_never_stricter_than_one_device_with_a_rule(
    cards: list[int], devices: tuple[Device, ...], ask: SharedAsk, percent: int, mode: str, uuids: tuple[str, ...]
) -> None:
    machine = _machine(cards, is_mig=bool(ask.profile))
    asked = msgspec.structs.replace(ask, compute_percent=percent)
    fit = DeviceFit(asked, machine, DeviceRule(uuids=uuids, mode=mode))
    columns = _in_columns(_table(machine, devices), asked)
    assert all(may for may, dev in zip(columns, devices, strict=True) if fit.nano_on(dev) is not None)


@given(_NODES, _ASKS)
def test_a_card_is_large_enough_to_be_opened_on_one_node_and_in_the_columns(cards: list[int], ask: SharedAsk) -> None:
    machine = _machine(cards)
    table = _table(machine, ())
    can_open = DeviceFit(ask, machine).opened_nano() is not None
    assert bool(cards_hold(table, slice(None), largest_mib([ask]))[0]) == can_open


@given(cards=_NODES, device=_DEVICES, by_memory=st.booleans())
def test_the_largest_fit_fits_and_one_more_does_not(cards: list[int], device: Device, *, by_memory: bool) -> None:
    machine = _machine(cards)
    dev = msgspec.structs.replace(device, is_open=True, resource=names.GPU_RESOURCE)
    kind = MemoryAsk if by_memory else FractionAsk
    largest = largest_fit(kind(1), dev, machine)
    assert not largest or DeviceFit(kind(largest), machine).nano_on(dev) is not None
    assert largest >= NANO or DeviceFit(kind(largest + 1), machine).nano_on(dev) is None


@pytest.mark.parametrize(
    ("rule", "changes", "fits"),
    [
        pytest.param(ANY_DEVICE, {}, True, id="any device"),
        pytest.param(DeviceRule(mode="mps"), {"modes": ("mps",)}, True, id="tenants of the same mode"),
        pytest.param(DeviceRule(mode="mps"), {"modes": ("time-slicing",)}, False, id="tenants of another mode"),
        pytest.param(DeviceRule(uuids=("GPU-1",)), {}, True, id="the named device"),
        pytest.param(DeviceRule(uuids=("GPU-2",)), {}, False, id="another device is named"),
        pytest.param(DeviceRule(not_uuids=("GPU-1",)), {}, False, id="the excluded device"),
        pytest.param(DeviceRule(uuids=("GPU-1",)), {"reservation": None}, False, id="nobody knows which device it is"),
        pytest.param(ANY_DEVICE, {"free_compute_percent": 29}, False, id="too little compute left"),
        pytest.param(ANY_DEVICE, {"free_nano": NANO // 2 - 1}, False, id="one nano too little"),
        pytest.param(ANY_DEVICE, {"is_open": False}, False, id="closed"),
        pytest.param(ANY_DEVICE, {"resource": SLICE}, False, id="another kind"),
    ],
)
def test_a_device_holds_a_share_by_its_room_its_kind_and_the_rule(
    rule: DeviceRule, changes: dict[str, object], *, fits: bool
) -> None:
    held = cluster(node(gpus=1), reservation("g", "n1", book={}, uuid="GPU-1")).snapshot().ledger.table.devices[0][0]
    dev = msgspec.structs.replace(held, **changes)
    ask = FractionAsk(NANO // 2, compute_percent=30)
    assert (DeviceFit(ask, _machine([0, 0]), rule).nano_on(dev) is not None) is fits
