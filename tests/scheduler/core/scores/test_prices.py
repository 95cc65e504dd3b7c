"""Prices made from usual pods."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import FractionAsk, MemoryAsk
from scheduler.core.cluster import Cluster
from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_fit import pools_of
from scheduler.core.model.plan import Alone
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.pod_kind import LEAST_PODS, Kind
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.scores.priced import Priced
from scheduler.core.scores.prices import (
    ARRIVAL,
    MOST_KINDS,
    MOST_SIZES,
    PROPORTIONAL,
    Arrivals,
    Prices,
    Typical,
    moved_percent,
    piece_values,
    prices_of,
    typical_of,
)
from scheduler.core.scores.score import KEY_END, Look, Wanted
from tests.scheduler.core.objects import NANO, bound, feed, node, pod, reservation

_USUAL = Typical(pods=100, gpu_milli=100_000, cpu_milli=400_000, mem_mib=100 * 8_192)


def _prices(typical: Typical) -> Prices:
    found = prices_of(typical)
    assert found
    return found


def _milli(prices: Prices, milli: int) -> int:
    """The value of a piece in milli-GPU, without the tie-break."""
    return prices.pieces_nano[milli] // (NANO // 1_000)


@pytest.mark.parametrize("pods", [0, LEAST_PODS - 1])
def test_a_young_cluster_has_no_prices(pods: int) -> None:
    assert prices_of(Typical(pods=pods, shares={500: 9}, gpu_milli=1, cpu_milli=1, mem_mib=1)) is None


def test_usual_pods_say_how_much_cpu_and_memory_go_with_a_gpu() -> None:
    found = _prices(_USUAL)
    assert found == Prices(pieces_nano=PROPORTIONAL, core_nano=NANO // 4, gib_nano=NANO // 8)


def test_pieces_are_worth_what_usual_shares_they_hold() -> None:
    found = _prices(Typical(pods=100, shares={300: 5, 333: 2}))
    assert [_milli(found, milli) for milli in (0, 299, 300, 332, 333)] == [0, 0, 333, 333, 333]
    assert [_milli(found, milli) for milli in (599, 600, 998, 999, 1_000)] == [333, 667, 1_000, 1_000, 1_001]


def test_of_many_sizes_the_most_usual_are_taken() -> None:
    shares = {10 * size: 1 for size in range(1, 80)} | {990: 1_000}
    found = _prices(Typical(pods=100, shares=shares))
    assert len(shares) > MOST_SIZES
    # 10 to 230 milli and 990: what is usual and smaller than 240 is among them, what is between is not
    assert _milli(found, 230) < _milli(found, 990)


def test_nothing_known_about_a_resource_is_no_price() -> None:
    assert _prices(Typical(pods=100, gpu_milli=1_000)).core_nano == 0


def test_prices_are_an_input_of_decisions_and_only_new_ones_are_news() -> None:
    made = Cluster(Settings())
    feed(made, node("n1"), node("n2", 0))
    before = made.generation
    made.note_prices(None)
    assert made.generation == before
    made.note_prices(_prices(_USUAL))
    assert made.generation == before + 1


# Priced: where the least of what a node is still good for is lost.

_BY_PRICES = Settings(gpu_strategy=Strategy.PRICED, cpu_strategy=Strategy.PRICED)


#: Shares of 0.8 and of 0.3 are usual, with 4 cores and 16 GiB for a GPU.
_PRICED_USUAL = Typical(pods=100, shares={800: 50, 300: 50}, gpu_milli=1_000, cpu_milli=4_000, mem_mib=16_384)
_PRICES = _prices(_PRICED_USUAL)
_EQUAL = Prices(pieces_nano=PROPORTIONAL)
_M = NANO // 1_000


def _cluster(*objects: Any, prices: Prices | None = _PRICES) -> Cluster:
    made = Cluster(_BY_PRICES)
    made.note_prices(prices)
    feed(made, *objects)
    return made


def _node(*objects: Any, prices: Prices | None = _PRICES) -> str:
    made = _cluster(*objects, prices=prices)
    (placement,) = [entry.placement for entry in made.decide(0).entries if isinstance(entry, Alone)]
    assert made.validate() == []
    return placement.node


def _used(group: str, on: str, milli: int) -> Any:
    return reservation(group, on, book={f"of-{group}": milli * _M}, uuid=f"GPU-{group}")


def _whole(on: str) -> Any:
    return bound(pod(f"on-{on}", gpus=1, cpu="1"), on)


@pytest.mark.parametrize(
    ("objects", "asked", "expected"),
    [
        # of 0.5 free a share of 0.3 leaves nothing usual, of 0.7 free another 0.3: each loses one of them
        ([node("n1"), node("n2"), _used("a", "n1", 300), _used("b", "n2", 500)], {"fraction": "0.3"}, "n2"),
        # 0.3 free beside a 0.7 is used up, a fresh device is not broken
        ([node("n1"), node("n2"), _used("a", "n2", 700)], {"fraction": "0.3"}, "n2"),
        # an unusual small share goes into a piece that is worth nothing, however much is free elsewhere
        ([node("n1"), node("n2"), _used("a", "n1", 700), _used("b", "n2", 800)], {"fraction": "0.1"}, "n2"),
        # a pod that asks little CPU goes where CPU is short
        ([node("n1", cpu="64"), node("n2", cpu="8")], {"gpus": 1, "cpu": "1"}, "n2"),
        # ... and memory likewise
        ([node("n1"), node("n2", memory="16Gi")], {"gpus": 1, "memory": "1Gi"}, "n2"),
        # a pod without GPUs goes where CPU is to spare
        ([node("n1", cpu="32"), node("n2", cpu="64")], {"cpu": "8"}, "n2"),
        # ... and before that, where no GPUs are
        ([node("n1"), node("n2", 0)], {"cpu": "1"}, "n2"),
        # of nodes that lose the same the fullest, so that whole nodes stay free
        ([node("n1"), node("n2"), _whole("n2")], {"gpus": 1}, "n2"),
        ([node("n1", 0), node("n2", 0), bound(pod("old", cpu="1"), "n2")], {"cpu": "1"}, "n2"),
        # equals by name
        ([node("n2"), node("n1")], {"gpus": 1}, "n1"),
    ],
)
def test_a_pod_goes_where_the_least_is_lost(objects: list[Any], asked: dict[str, Any], expected: str) -> None:
    assert _node(*objects, pod("p", **asked)) == expected


@pytest.mark.parametrize("prices", [None, _EQUAL], ids=["none yet", "nobody shares"])
def test_without_prices_of_pieces_the_tightest_device_is_taken(prices: Prices | None) -> None:
    objects = [node("n1"), node("n2"), node("n3"), _used("a", "n2", 300), _used("b", "n3", 400)]
    assert _node(*objects, pod("p", fraction="0.5"), prices=prices) == "n3"


def test_before_there_are_prices_pods_go_where_binpack_puts_them() -> None:
    # by usual pods CPU is short on n1; as KAI has it, n2 is the fullest by GPUs and n1 by CPU
    objects = [node("n1", cpu="2"), node("n2", cpu="64"), _whole("n2")]
    assert _node(*objects, pod("p", gpus=1), prices=None) == "n2"
    assert _node(*objects, pod("p", cpu="1"), prices=None) == "n1"
    assert _node(*objects, pod("p", gpus=1)) == "n1"


def _groups(*objects: Any) -> list[str]:
    made = _cluster(*objects)
    (placement,) = [entry.placement for entry in made.decide(0).entries if isinstance(entry, Alone)]
    return [device.group for device in placement.devices]


def test_the_device_is_the_one_that_loses_the_least() -> None:
    # 0.6 free holds two usual shares and 0.4 one, so a share of 0.1 takes nothing from 0.4
    assert _groups(node("n1", 2), _used("a", "n1", 400), _used("b", "n1", 600), pod("p", fraction="0.1")) == ["b"]


def test_a_fresh_device_is_opened_if_that_loses_less_than_sharing() -> None:
    thirds = Priced(_prices(Typical(pods=100, shares={333: 1})))
    # 0.666 free holds two thirds: any share breaks one of them, while a whole device has 0.001 to spare
    assert thirds.opens_rather(666 * _M, _M)
    # a share of 0.3 breaks a third anywhere, so nothing is opened for it
    assert not thirds.opens_rather(666 * _M, 300 * _M)
    assert not thirds.opens_rather(NANO, 500 * _M)


def test_two_shares_of_one_pod_go_to_the_two_devices_that_lose_the_least() -> None:
    used = [_used("a", "n1", 700), _used("b", "n1", 700), _used("c", "n1", 200)]
    assert set(_groups(node("n1", 4), *used, pod("p", fraction="0.3", devices=2))) == {"a", "b"}


def _look(made: Cluster, asks: tuple[Any, ...], demand: Demand) -> Look:
    statement = Placer(made.snapshot()).statement
    wanted = Wanted.SHARES if asks else Wanted.GPUS if demand.gpus else Wanted.CPU
    return Look(statement.table, slice(None), wanted, pools_of(asks, statement), demand=demand)


def _worth(free: dict[str, Any], prices: Prices) -> int:
    """What a node is worth, in parts of a nano-GPU: in plain numbers."""
    gpus = sum(prices.pieces_nano[nano // _M] for nano in free["pieces"]) + free["whole"] * prices.pieces_nano[1_000]
    cpu = max(free["cpu"], 0) * (prices.core_nano * 1_024 // 1_000)
    return int(min(gpus * 1_024, cpu, max(free["mem"], 0) * prices.gib_nano))


@pytest.mark.parametrize("seed", range(30))
def test_keys_are_the_loss_of_worth_and_then_what_is_left_in_plain_numbers(seed: int) -> None:
    rng = random.Random(seed)
    objects: list[Any] = []
    for number in range(5):
        name, gpus = f"n{number}", rng.choice([1, 2, 4])
        objects.append(node(name, gpus, cpu=str(rng.randint(1, 40)), memory=f"{rng.randint(8, 128)}Gi"))
        objects += [_used(f"{name}-{i}", name, rng.randrange(1, 100) * 10) for i in range(rng.randint(0, gpus))]
    made = _cluster(*objects)
    nano = rng.choice([0, 100 * _M, 300 * _M, 800 * _M, 333_333_333, 666_666_667])
    demand = Demand(cpu_milli=rng.choice([0, 500, 4_000]), mem_mib=rng.choice([0, 2_048]), gpus=int(not nano))
    asks = (FractionAsk(nano),) if nano else ()
    look = _look(made, asks, demand)
    keys = Priced(_PRICES).keys(look)
    for position, devices in enumerate(look.table.devices):
        free: dict[str, Any] = {
            "pieces": [dev.free_nano for dev in devices],
            "whole": int(look.free[4, position]),
            "cpu": int(look.free[0, position]),
            "mem": int(look.free[1, position]),
        }
        left = [_worth(after, _PRICES) for after in _afters(free, nano, demand)]
        if left:
            eighths = (free["whole"] * 1_000 + sum(free["pieces"]) // _M) // 125
            assert divmod(int(keys[position]), 1_024) == (_worth(free, _PRICES) - max(left), eighths)


def _afters(free: dict[str, Any], nano: int, demand: Demand) -> list[dict[str, Any]]:
    """All that could be left of a node; none where the pod does not fit."""
    rest = {**free, "cpu": free["cpu"] - demand.cpu_milli, "mem": free["mem"] - demand.mem_mib}
    if rest["cpu"] < 0 or rest["mem"] < 0:
        return []
    if demand.gpus:
        return [{**rest, "whole": rest["whole"] - demand.gpus}] if rest["whole"] >= demand.gpus else []
    pieces = free["pieces"]
    found = [
        {**rest, "pieces": [*pieces[:i], had - nano, *pieces[i + 1 :]]} for i, had in enumerate(pieces) if had >= nano
    ]
    opened = {**rest, "pieces": [*pieces, NANO - nano], "whole": rest["whole"] - 1}
    return [*found, *([opened] if free["whole"] > 0 else [])]


@pytest.mark.parametrize(
    "asks",
    [(), (FractionAsk(NANO // 2),), (MemoryAsk(1 << 60),), (MemoryAsk(1), MemoryAsk(1 << 40)), (FractionAsk(1),) * 40],
    ids=["none", "half", "absurd memory", "two", "forty"],
)
def test_what_is_absurd_stays_in_its_bits(asks: tuple[Any, ...]) -> None:
    full = [reservation(f"g{i}", "n2", book={f"t{i}": 1}, uuid=f"GPU-{i}") for i in range(40)]
    made = _cluster(
        node("n1", 65_536, cpu="9E", memory="7Ei", mem_mib=1 << 40), node("n2", 127, cpu="1"), node("n3", 0), *full
    )
    demand = Demand(cpu_milli=1 << 62, mem_mib=1 << 62, gpus=7)
    dear = Prices(pieces_nano=PROPORTIONAL, core_nano=1_000 * NANO, gib_nano=1_000 * NANO)
    for prices in (_PRICES, _EQUAL, dear):
        for asked in (demand, Demand()):
            keys = Priced(prices).keys(_look(made, asks, asked))
            assert keys.dtype == np.int64
            assert keys.min() >= 0
            assert keys.max() < KEY_END


# The value of pieces of a device, against all patterns and against known cases.


@pytest.mark.parametrize(
    ("sizes", "demand", "capacity", "worth"),
    [
        # halves: a piece below one is worth nothing
        ([5], [1], 10, {4: 0.0, 5: 0.5, 9: 0.5, 10: 1.0}),
        # thirds that leave one unit
        ([3], [7], 10, {2: 0.0, 3: 1 / 3, 6: 2 / 3, 9: 1.0, 10: 1.0}),
        # large shares take a device each, so small ones come for nothing: what is left beside a large one holds them
        ([8, 2], [20, 10], 10, {2: 0.0, 8: 1.0, 10: 1.0}),
        # ... until there are more small ones than gaps
        ([8, 2], [10, 100], 10, {2: 0.2, 4: 0.4, 8: 0.8, 10: 1.0}),
        # nothing beside it
        ([7], [3], 10, {6: 0.0, 7: 1.0}),
        ([10], [3], 10, {9: 0.0, 10: 1.0}),
    ],
)
def test_a_piece_is_worth_what_usual_shares_it_holds(
    sizes: list[int], demand: list[int], capacity: int, worth: dict[int, float]
) -> None:
    values = piece_values(sizes, demand, capacity)
    assert {units: values[units] for units in worth} == pytest.approx(worth)


def _patterns(sizes: list[int], capacity: int) -> Iterator[tuple[int, ...]]:
    counts = [range(capacity // size + 1) for size in sizes]
    for pattern in itertools.product(*counts):
        if sum(size * count for size, count in zip(sizes, pattern, strict=True)) <= capacity:
            yield pattern


@st.composite
def _mixes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    sizes = draw(st.lists(st.integers(2, 12), min_size=1, max_size=4, unique=True))
    return sizes, [draw(st.integers(1, 50)) for _ in sizes]


@given(_mixes())
def test_values_are_duals_no_pattern_is_worth_more_than_a_device(mix: tuple[list[int], list[int]]) -> None:
    sizes, demand = mix
    values = piece_values(sizes, demand, 12)
    assert values[12] == 1.0
    assert values == sorted(values)
    for pattern in _patterns(sizes, 12):
        worth = sum(values[size] * count for size, count in zip(sizes, pattern, strict=True))
        assert worth <= 1 + 1e-6


@given(_mixes())
def test_values_are_best_the_shares_are_worth_as_many_devices_as_they_take(mix: tuple[list[int], list[int]]) -> None:
    """By complementary slackness on the fractional optimum, found here by trying every basis of patterns."""
    sizes, demand = mix
    values = piece_values(sizes, demand, 12)
    worth = sum(values[size] * wanted for size, wanted in zip(sizes, demand, strict=True))
    assert worth == pytest.approx(_least_devices(sizes, demand), rel=1e-6)


def _least_devices(sizes: list[int], demand: list[int]) -> float:
    """All bases at once: matrices of integers, so a determinant is 0 or at least 1."""
    columns = np.array([pattern for pattern in _patterns(sizes, 12) if any(pattern)], dtype=float)
    bases = columns[list(itertools.combinations(range(len(columns)), len(sizes)))].transpose(0, 2, 1)
    bases = bases[np.abs(np.linalg.det(bases)) > 0.5]
    amounts = np.linalg.solve(
        bases, np.broadcast_to(np.array(demand, dtype=float)[:, None], (len(bases), len(sizes), 1))
    )
    return float(min(each.sum() for each in amounts if each.min() > -1e-9))


@pytest.mark.parametrize("sizes", [[], [0], [11], [5, -1]])
def test_sizes_that_fit_no_device_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="1 to 10 units"):
        piece_values(sizes, [1] * len(sizes), 10)


# Which pods are usual.

_HALF = Kind(1, 500, 2_000, 4_096)
_WHOLE = Kind(2, 1_000, 16_000, 65_536)


def _counted(*kinds: Kind) -> Arrivals:
    made = Arrivals()
    for kind in kinds:
        made.add(kind)
    return made


def test_usual_pods_are_summed_and_shares_counted_by_size() -> None:
    found = typical_of(_counted(_HALF, _HALF, _WHOLE).counts())
    assert found.pods == 3
    assert found.shares == {500: 2 * ARRIVAL}
    assert found.gpu_milli == 3_000 * ARRIVAL
    assert found.cpu_milli == 20_000 * ARRIVAL
    assert found.mem_mib == (2 * 4_096 + 65_536) * ARRIVAL


def test_rare_pods_however_absurd_are_not_usual() -> None:
    absurd = Kind(1, 10, 1 << 50, 1 << 50)
    found = typical_of(_counted(*[_HALF] * 95, *[absurd] * 5).counts())
    assert found.cpu_milli == 95 * 2_000 * ARRIVAL
    assert list(found.shares) == [500]


def test_older_pods_count_half_after_each_period_and_nothing_in_the_end() -> None:
    made = _counted(_HALF)
    made.halve()
    made.add(_WHOLE)
    assert made.counts() == {_HALF: ARRIVAL // 2, _WHOLE: ARRIVAL}
    for _ in range(12):
        made.halve()
    assert made.counts() == {}


def test_pods_that_all_differ_do_not_fill_memory_and_usual_ones_stay() -> None:
    made = _counted(*[_HALF] * 10, *(Kind(1, 1, number, 0) for number in range(3 * MOST_KINDS)))
    assert len(made.counts()) <= MOST_KINDS
    assert made.counts()[_HALF] == 10 * ARRIVAL


@pytest.mark.parametrize(
    ("before", "now", "percent"),
    [
        ({}, {}, 0),
        ({}, {_HALF: 1}, 100),
        ({_HALF: 3}, {_HALF: 7}, 0),
        ({_HALF: 10}, {_HALF: 9, _WHOLE: 1}, 10),
        ({_HALF: 10}, {_WHOLE: 1}, 100),
        ({_HALF: 1, _WHOLE: 1}, {_HALF: 2, _WHOLE: 1}, 16),
    ],
)
def test_how_far_a_mix_has_moved(before: dict[Kind, int], now: dict[Kind, int], percent: int) -> None:
    assert moved_percent(before, now) == percent


def test_pods_count_once_when_they_come_to_a_node_by_what_they_ask() -> None:
    made = Cluster(Settings(gpu_strategy=Strategy.PRICED))
    asked: dict[str, Any] = {"cpu": "2", "memory": "4Gi"}
    waiting = pod("a", gpus=2, **asked)
    feed(made, node("n1"), waiting)
    assert made.arrivals.counts() == {}
    on_node = pod("a", gpus=2, bound_to="n1", **asked)
    feed(made, on_node, pod("a", gpus=2, bound_to="n1", labels={"seen": "again"}, **asked))
    feed(made, bound(pod("b", fraction="0.4"), "n1", ("g", 333_333_333)), pod("c", bound_to="n1", **asked))
    assert made.arrivals.counts() == {Kind(2, 1_000, 2_000, 4_096): ARRIVAL, Kind(1, 333, 0, 0): ARRIVAL}


def test_pods_count_under_every_strategy() -> None:
    made = Cluster(Settings(gpu_strategy=Strategy.BINPACK, cpu_strategy=Strategy.SPREAD))
    feed(made, node("n1"), pod("a", gpus=2, bound_to="n1"))
    assert made.arrivals.counts() == {Kind(2, 1_000, 0, 0): ARRIVAL}
