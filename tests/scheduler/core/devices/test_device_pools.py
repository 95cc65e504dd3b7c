"""How many devices have to be opened for several asks is what a search through all ways to seat them finds."""

from __future__ import annotations

from itertools import permutations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import FractionAsk, SharedAsk
from scheduler.core.devices.device_fit import Pool
from scheduler.core.nodes.table import GPUS, Device, Int64s, Table
from tests.scheduler.core.objects import NANO, cluster, node
from wire import names

SLICE = "nvidia.com/mig-1g.10gb"
QUARTER, HALF = NANO // 4, NANO // 2
_SHARES = st.sampled_from([QUARTER, HALF, HALF + 1, NANO])


def _table(resource: str, free: list[int]) -> Table:
    """One node with devices of a resource that are shared, each with so much free."""
    machine = cluster(node(gpus=8)).snapshot().ledger.in_order().nodes[0]
    table = Table()
    table.add_columns(1)
    table.add_resource(SLICE)
    shared = Device(group="g", free_nano=0, card_mib=0, is_open=True, resource=resource)
    table.put_devices(0, machine, tuple(msgspec.structs.replace(shared, free_nano=nano) for nano in free))
    return table


def _rows(table: Table, profile: str) -> Int64s | None:
    return np.array([table.resources.index(SLICE)]) if profile else None


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
    table = _table(SLICE if profile else names.GPU_RESOURCE, free)
    asks: tuple[SharedAsk, ...] = tuple(FractionAsk(nano, profile=profile) for nano in asked)
    opened, _ = Pool(profile, asks, _rows(table, profile)).tightest(table, slice(None))
    assert opened.tolist() == [_to_open(asked, free)]


@given(count=st.integers(1, 3), free=st.lists(_SHARES, max_size=4))
def test_equal_asks_are_ranked_by_what_is_free_on_the_tightest_devices_that_hold_them(
    count: int, free: list[int]
) -> None:
    table = _table(names.GPU_RESOURCE, free)
    _, tight = Pool("", (FractionAsk(HALF),) * count, None).tightest(table, slice(None))
    assert tight.tolist() == [sum(sorted(nano for nano in free if nano >= HALF)[:count])]


@pytest.mark.parametrize(("profile", "row"), [("", GPUS), ("1g.10gb", -1)])
def test_devices_that_the_pod_is_handed_out_whole_cannot_be_opened_for_its_shares(profile: str, row: int) -> None:
    table = _table(names.GPU_RESOURCE, [])
    row %= len(table.resources)
    table.free[row, 0] = 5
    pool = Pool(profile, (FractionAsk(HALF, profile=profile),), _rows(table, profile))
    assert pool.spare(table, slice(None), {}).tolist() == [5]
    assert pool.spare(table, slice(None), {row: 2}).tolist() == [3]
