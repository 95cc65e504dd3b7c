"""Devices of a node: which hold a share, and which a pod gets."""

from __future__ import annotations

from itertools import permutations
from typing import Any

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
    Pool,
    cards_hold,
    fitting,
    free_in_slots,
    largest_fit,
    largest_mib,
)
from scheduler.core.model.plan import Alone
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.nodes.table import GPUS, Device, Int64s, Table
from tests.scheduler.core.objects import NANO, cluster, node, reservation
from tests.scheduler.core.stories.test_slices import LARGE, SLICE, asking
from wire import names

# Which devices pods get that ask for several, of unequal sizes or of several kinds.

_SPREAD = Settings(gpu_strategy=Strategy.SPREAD)


def _share(percent: int, profile: str = "") -> FractionAsk:
    return FractionAsk(percent * NANO // 100, profile=profile)


def _held(name: str, on: str = "n1", *, free: int, mem_mib: int = 0, resource: str = "nvidia.com/gpu") -> Any:
    """A shared device with so many percent free."""
    book = {f"of-{name}": (100 - free) * NANO // 100} if free < 100 else {}
    return reservation(name, on, book=book, uuid=f"GPU-{name}", mem_mib=mem_mib, resource=resource)


@pytest.mark.parametrize(
    ("objects", "asks", "settings", "expected"),
    [
        pytest.param(
            [node(gpus=2), _held("a", free=90), _held("b", free=50)],
            (_share(10), _share(80)),
            _SPREAD,
            ["b", "a"],
            id="the largest ask chooses first",
        ),
        pytest.param(
            [node(gpus=2, mem_mib=80_000), _held("a", free=90, mem_mib=80_000), _held("b", free=50, mem_mib=80_000)],
            (MemoryAsk(10_000), MemoryAsk(60_000)),
            _SPREAD,
            ["b", "a"],
            id="the largest amount of memory chooses first",
        ),
        pytest.param(
            [node(gpus=2), _held("a", free=50), _held("b", free=20)],
            (_share(50), _share(10)),
            None,
            ["a", "b"],
            id="a smaller ask needs no device as large as the first",
        ),
        pytest.param(
            [node(gpus=2), _held("a", free=50, mem_mib=40_000), _held("b", free=60)],
            (_share(50), MemoryAsk(10_000)),
            None,
            ["b", "a"],
            id="memory goes where it is known how much there is",
        ),
        pytest.param(
            [
                node(gpus=0, extended={SLICE: 1, LARGE: 1}),
                _held("c", free=90, resource=LARGE),
                _held("s", free=20, resource=SLICE),
            ],
            (_share(90, "3g.40gb"), _share(20, "1g.10gb")),
            None,
            ["c", "s"],
            id="each kind of device has its own asks",
        ),
        pytest.param(
            [
                node(gpus=0, extended={SLICE: 1, LARGE: 1}),
                _held("c", free=20, resource=LARGE),
                _held("s", free=90, resource=SLICE),
            ],
            (_share(20, "3g.40gb"), _share(90, "1g.10gb")),
            None,
            ["c", "s"],
            id="each kind of device has its own asks, the slice the larger",
        ),
        pytest.param(
            [
                *(node("n1", 2), _held("a50", "n1", free=50), _held("a90", "n1", free=90)),
                *(node("n2", 4), _held("b50", "n2", free=50), _held("b60", "n2", free=60)),
            ],
            (_share(50), _share(50)),
            None,
            ["b50", "b60"],
            id="the tightest devices in all decide, not the tightest one",
        ),
        pytest.param([node(gpus=1)], (_share(10),), None, ["new"], id="the last device is opened"),
        pytest.param(
            [node(gpus=0, extended={SLICE: 1, LARGE: 1})],
            (_share(10, "3g.40gb"), _share(10, "1g.10gb")),
            None,
            ["new", "new"],
            id="the last of each kind is opened",
        ),
        pytest.param(
            [node(gpus=2), _held("a", free=40), _held("b", free=40)],
            (_share(50),),
            None,
            [],
            id="no device has room, and none is left to open",
        ),
    ],
)
def test_of_several_devices_each_ask_gets_one_that_holds_it(
    objects: list[Any], asks: tuple[Any, ...], settings: Settings | None, expected: list[str]
) -> None:
    known = {name for each in objects for name in [each.metadata.name.split("-")[2:3]] for name in name}
    made = cluster(*objects, asking(*asks), settings=settings)
    placed = [entry.placement for entry in made.decide(0).entries if isinstance(entry, Alone)]
    groups = [device.group if device.group in known else "new" for each in placed for device in each.devices]
    assert groups == expected


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({"cpu": "1500m"}, []),
        ({"cpu": "2"}, ["new", "new"]),
        ({"memory": "1500Mi"}, []),
        ({"memory": "2000Mi"}, ["new", "new"]),
        ({"pods": 2}, []),
        ({"pods": 3}, ["new", "new"]),
    ],
)
def test_a_share_and_an_amount_of_memory_open_as_many_devices_as_have_room_for_their_reservations(
    amounts: dict[str, Any], expected: list[str]
) -> None:
    """Which nodes are looked at is too hopeful there: each of the two could have the one device that may be opened."""
    requests = {"cpu": "1", "memory": "1000Mi"}
    waiting = asking(_share(50), MemoryAsk(10_000))
    resources = msgspec.structs.replace(waiting.spec.containers[0].resources, requests=requests)
    first = msgspec.structs.replace(waiting.spec.containers[0], resources=resources)
    spec = msgspec.structs.replace(waiting.spec, containers=[first, *waiting.spec.containers[1:]])
    there = node(mem_mib=40_000, **amounts)
    settings = Settings(reservation_cpu_milli=500, reservation_mem_mib=500)
    made = cluster(there, msgspec.structs.replace(waiting, spec=spec), settings=settings)
    placed = [entry.placement for entry in made.decide(0).entries if isinstance(entry, Alone)]
    assert ["new" for each in placed for _ in each.devices] == expected


DEVICE_FIT_SLICE = "nvidia.com/mig-1g.10gb"
CARDS = [0, 10_000, 30_000]
EDGES = [0, 1, NANO // 3, NANO // 2, NANO - 1, NANO]

_DEVICES = st.builds(
    Device,
    group=st.just("g"),
    free_nano=st.one_of(st.sampled_from(EDGES), st.integers(0, NANO)),
    card_mib=st.sampled_from(CARDS),
    is_open=st.booleans(),
    resource=st.sampled_from([names.GPU_RESOURCE, DEVICE_FIT_SLICE]),
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
    made = cluster(node(gpus=8, extended={DEVICE_FIT_SLICE: 3} if is_mig else {})).snapshot().ledger.in_order().nodes[0]
    return msgspec.structs.replace(made, smallest_card_mib=smallest, largest_card_mib=largest)


def _table(machine: NodeRecord, devices: tuple[Device, ...]) -> Table:
    table = Table()
    table.add_columns(1)
    table.add_resource(DEVICE_FIT_SLICE)
    table.put_devices(0, machine, devices)
    return table


def _in_columns(table: Table, ask: SharedAsk) -> list[bool]:
    rows = np.array([table.resources.index(DEVICE_FIT_SLICE)]) if ask.profile else None
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
        pytest.param(ANY_DEVICE, {"resource": DEVICE_FIT_SLICE}, False, id="another kind"),
    ],
)
def test_a_device_holds_a_share_by_its_room_its_kind_and_the_rule(
    rule: DeviceRule, changes: dict[str, object], *, fits: bool
) -> None:
    held = cluster(node(gpus=1), reservation("g", "n1", book={}, uuid="GPU-1")).snapshot().ledger.table.devices[0][0]
    dev = msgspec.structs.replace(held, **changes)
    ask = FractionAsk(NANO // 2, compute_percent=30)
    assert (DeviceFit(ask, _machine([0, 0]), rule).nano_on(dev) is not None) is fits


# How many devices have to be opened for several asks is what a search through all ways to seat them finds.

DEVICE_POOLS_SLICE = "nvidia.com/mig-1g.10gb"
QUARTER, HALF = NANO // 4, NANO // 2
_SHARES = st.sampled_from([QUARTER, HALF, HALF + 1, NANO])


def _device_pools_table(resource: str, free: list[int]) -> Table:
    """One node with devices of a resource that are shared, each with so much free."""
    machine = cluster(node(gpus=8)).snapshot().ledger.in_order().nodes[0]
    table = Table()
    table.add_columns(1)
    table.add_resource(DEVICE_POOLS_SLICE)
    shared = Device(group="g", free_nano=0, card_mib=0, is_open=True, resource=resource)
    table.put_devices(0, machine, tuple(msgspec.structs.replace(shared, free_nano=nano) for nano in free))
    return table


def _rows(table: Table, profile: str) -> Int64s | None:
    return np.array([table.resources.index(DEVICE_POOLS_SLICE)]) if profile else None


def _to_open(asked: list[int], free: list[int]) -> int:
    """The fewest devices to be opened, by looking at every way to seat the asks on what is shared."""
    seats = [*free, *([NANO] * len(asked))]
    ways = permutations(range(len(seats)), len(asked))
    return min(
        sum(seat >= len(free) for seat in way)
        for way in ways
        if all(seats[seat] >= nano for seat, nano in zip(way, asked, strict=True))
    )


@pytest.mark.parametrize("profile", ["", "1g.10gb"])
@given(asked=st.lists(_SHARES, min_size=1, max_size=3), free=st.lists(_SHARES, max_size=3))
def test_no_more_devices_are_opened_than_the_asks_lack(profile: str, asked: list[int], free: list[int]) -> None:
    table = _device_pools_table(DEVICE_POOLS_SLICE if profile else names.GPU_RESOURCE, free)
    asks: tuple[SharedAsk, ...] = tuple(FractionAsk(nano, profile=profile) for nano in asked)
    opened, _ = Pool(profile, asks, _rows(table, profile)).tightest(table, slice(None))
    assert opened.tolist() == [_to_open(asked, free)]


@given(count=st.integers(1, 3), free=st.lists(_SHARES, max_size=4))
def test_equal_asks_are_ranked_by_what_is_free_on_the_tightest_devices_that_hold_them(
    count: int, free: list[int]
) -> None:
    table = _device_pools_table(names.GPU_RESOURCE, free)
    _, tight = Pool("", (FractionAsk(HALF),) * count, None).tightest(table, slice(None))
    assert tight.tolist() == [sum(sorted(nano for nano in free if nano >= HALF)[:count])]


@pytest.mark.parametrize(("profile", "row"), [("", GPUS), ("1g.10gb", -1)])
def test_devices_that_the_pod_is_handed_out_whole_cannot_be_opened_for_its_shares(profile: str, row: int) -> None:
    table = _device_pools_table(names.GPU_RESOURCE, [])
    row %= len(table.resources)
    table.free[row, 0] = 5
    pool = Pool(profile, (FractionAsk(HALF, profile=profile),), _rows(table, profile))
    assert pool.spare(table, slice(None), {}).tolist() == [5]
    assert pool.spare(table, slice(None), {row: 2}).tolist() == [3]
