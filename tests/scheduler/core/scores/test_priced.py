"""Priced: where the least of what a node is still good for is lost."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from gpu.request import FractionAsk, MemoryAsk
from scheduler.core.cluster import Cluster
from scheduler.core.decide.placer import Placer
from scheduler.core.devices.device_fit import pools_of
from scheduler.core.model.plan import Alone
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.scores.priced import Priced
from scheduler.core.scores.prices import PROPORTIONAL, Prices, Typical, prices_of
from scheduler.core.scores.score import KEY_END, Look, Wanted
from tests.scheduler.core.objects import NANO, bound, feed, node, pod, reservation

_BY_PRICES = Settings(gpu_strategy=Strategy.PRICED, cpu_strategy=Strategy.PRICED)


def _prices(typical: Typical) -> Prices:
    found = prices_of(typical)
    assert found
    return found


#: Shares of 0.8 and of 0.3 are usual, with 4 cores and 16 GiB for a GPU.
_USUAL = Typical(pods=100, shares={800: 50, 300: 50}, gpu_milli=1_000, cpu_milli=4_000, mem_mib=16_384)
_PRICES = _prices(_USUAL)
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
