"""Traces on records: nothing is placed where it does not fit, what fits is placed, and the ledger is right."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from itertools import count
from pathlib import Path

import msgspec
import pytest

from gpu.bind_request import PlannedDevice
from gpu.share import NANO_PER_DEVICE
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from simulator.clock import VirtualClock
from simulator.traces import trace as reading
from simulator.traces.records import REPLAYED, Records, Run, SharedDevices, Strategies, at_load, node_name, node_record
from simulator.traces.replay import NoLifetimes, PricesFrom, churn, replay, replay_in_full
from simulator.traces.trace import Arrivals, Ask, Trace, TraceNode, arrivals
from tests.simulator.traces.made_up import trace

VIRTUAL_TIME = True

pytestmark = pytest.mark.thorough

#: A folder with the public traces; their licence lets nobody ship them.
_PUBLIC = os.environ.get("MOORAGE_TRACES", "")


def _replayed(
    made: Trace, strategy: str, *, seed: int = 1, prices_from: PricesFrom = PricesFrom.TRACE
) -> tuple[Run, list[str]]:
    order, nodes = arrivals(made, seed, load_percent=130), dict[int, str]()
    run = replay(
        made, order, Strategies(strategy, strategy), seed=seed, prices_from=prices_from, told=nodes.__setitem__
    )
    _check(made, order, list(nodes.values()))
    return run, list(nodes.values())


def _check(made: Trace, order: Arrivals, placed: list[str]) -> None:
    """By sums alone: no node has more than it has, and no pod was lost beside a node with room for it."""
    by_name = {node_name(node, rank): node for node, rank in zip(made.nodes, order.ranks, strict=True)}
    cpu, mem, milli = Counter[str](), Counter[str](), Counter[str]()
    whole = {name: node.gpus for name, node in by_name.items()}
    for pod, name in zip(order.pods, placed, strict=True):
        ask = pod.ask
        if name:
            assert not ask.models or by_name[name].model in ask.models
            cpu[name] += ask.cpu_milli
            mem[name] += ask.mem_mib
            milli[name] += ask.total_milli
        elif not ask.is_shared:
            free = Ask(cpu_milli=ask.cpu_milli, mem_mib=ask.mem_mib, gpus=ask.gpus)
            assert not any(
                node.cpu_milli - cpu[each] >= free.cpu_milli
                and node.mem_mib - mem[each] >= free.mem_mib
                and milli[each] == 0
                and whole[each] >= free.gpus
                and (not ask.models or node.model in ask.models)
                for each, node in by_name.items()
            )
    for name, node in by_name.items():
        assert cpu[name] <= node.cpu_milli
        assert mem[name] <= node.mem_mib
        assert milli[name] <= node.gpus * 1_000


@pytest.mark.parametrize("strategy", REPLAYED)
@pytest.mark.parametrize("has_models", [False, True])
def test_a_replay_places_what_fits_and_counts_right(strategy: str, has_models: bool) -> None:
    run, placed = _replayed(trace(30, 200, has_models=has_models), strategy)
    assert run.differences == ()
    assert run.pods == len(placed)
    assert run.lost == placed.count("") > 0
    assert 0 < run.curve[-1].used_e4 <= 10_000


def test_prices_use_more_gpus_than_binpack_does() -> None:
    made = trace(60, 500)
    used = {name: _replayed(made, name)[0].curve[-1].used_e4 for name in ("binpack", "priced")}
    assert used["priced"] > used["binpack"]


def test_prices_may_be_learned_on_the_way() -> None:
    made = trace(60, 500)
    learned, placed = _replayed(made, "priced", prices_from=PricesFrom.ARRIVALS)
    known, others = _replayed(made, "priced")
    assert learned.differences == ()
    assert placed != others, "prices matter"
    # the first fifty go where binpack puts them, a tenth of all
    assert learned.curve[-1].used_e4 > known.curve[-1].used_e4 - 500


def test_pods_that_end_give_back_what_they_had() -> None:
    made = trace(3, 40)
    records = Records(made.nodes, range(3), gpu_strategy="priced", cpu_strategy="priced")
    for again in range(3):
        bound = [uid for i, pod in enumerate(made.pods) if records.place(uid := f"{again}-{i}", pod.ask) is not None]
        assert bound
        for uid in bound:
            records.end(uid)
        assert records.validate() == []
        assert records.cluster.ledger.table.free.tolist() == records.cluster.ledger.table.total.tolist()


@pytest.mark.skipif(not _PUBLIC, reason="MOORAGE_TRACES names no folder with the public traces")
@pytest.mark.parametrize(
    ("strategies", "pods", "lost", "used_e4"),
    [
        (Strategies("best-fit", "best-fit"), 10_866, 2_676, 9_313),  # as published, to the digit
        (Strategies("binpack", "binpack"), 10_866, 2_984, None),
        (Strategies("priced", "priced"), 10_866, 2_438, None),
    ],
    ids=str,
)
def test_the_public_trace_gives_the_published_figures(
    strategies: Strategies, pods: int, lost: int, used_e4: int | None
) -> None:
    folder = Path(_PUBLIC)
    public = Trace(nodes=reading.openb_nodes(folder), pods=reading.openb_pods(folder, "default"))
    run = replay(public, arrivals(public, 42, load_percent=130), strategies, seed=42)
    assert (run.pods, run.lost, run.differences) == (pods, lost, ())
    found = at_load(run.curve, 130)
    assert found is not None
    assert used_e4 is None or found.used_e4 == used_e4
    assert strategies.gpu != "priced" or found.used_e4 >= 9_620


# Pods that come and go on a full cluster.


def _living(nodes: int, *, lived_s: tuple[int, ...]) -> Trace:
    made = trace(nodes, 120)
    pods = (msgspec.structs.replace(pod, lived_s=lived_s[i % len(lived_s)]) for i, pod in enumerate(made.pods))
    return Trace(nodes=made.nodes, pods=tuple(pods))


@pytest.mark.parametrize("strategy", ["binpack", "priced"])
def test_a_full_cluster_stays_as_full_as_it_can_and_its_ledger_right(strategy: str) -> None:
    made = _living(12, lived_s=(100, 1_000, 50_000))
    run = churn(made, Strategies(strategy, strategy), seed=1, load_percent=130, arrivals=400)
    assert run.differences == ()
    assert run.arrived == 200
    assert 0 < run.lost < 200
    assert 60 < run.used_percent <= 100


def test_an_idle_cluster_loses_nobody_and_is_used_as_much_as_is_asked() -> None:
    made = _living(30, lived_s=(1_000,))
    run = churn(made, Strategies("priced", "priced"), seed=1, load_percent=20, arrivals=1_000)
    assert run.lost == 0
    assert run.used_percent == pytest.approx(20, abs=3)


def test_a_trace_without_lifetimes_is_refused() -> None:
    with pytest.raises(NoLifetimes, match="creation_time, deletion_time"):
        churn(trace(4, 20), Strategies("priced", "priced"), seed=1, load_percent=110, arrivals=5)


# A trace through API server, admission, scheduler and binder: the same placements as on records.


@pytest.mark.parametrize(
    "strategies",
    [Strategies("binpack", "binpack"), Strategies("priced", "priced"), Strategies("spread", "priced"),
     Strategies("best-fit", "best-fit")],
    ids=str,
)  # fmt: skip
async def test_the_whole_of_moorage_places_a_trace_as_records_do(strategies: Strategies) -> None:
    await _same(trace(8, 60, has_models=True), strategies, seed=7)


@pytest.mark.thorough
@pytest.mark.timeout(1_200)
@pytest.mark.skipif(not _PUBLIC, reason="MOORAGE_TRACES names no folder with the public traces")
async def test_a_tenth_of_the_public_trace_is_placed_as_on_records() -> None:
    folder = Path(_PUBLIC)
    public = Trace(nodes=reading.openb_nodes(folder), pods=reading.openb_pods(folder, "default"))
    await _same(public.part(10), Strategies("priced", "priced"), seed=42)


async def _same(made: Trace, strategies: Strategies, *, seed: int) -> None:
    order = arrivals(made, seed, load_percent=130)
    on_records, in_full = dict[int, str](), dict[int, str]()
    expected = replay(made, order, strategies, seed=seed, told=on_records.__setitem__)
    clock = VirtualClock(asyncio.get_running_loop())
    found = await replay_in_full(made, order, strategies, seed=seed, clock=clock, told=in_full.__setitem__)
    assert in_full == on_records
    assert found == expected
    assert found.lost
    assert found.differences == ()


# Devices that are shared on records.


def test_a_device_has_a_reservation_from_its_first_tenant_to_its_last() -> None:
    cluster, numbers = Cluster(Settings()), count(1)
    node = node_record(TraceNode(name="n", cpu_milli=1_000, mem_mib=1_000, gpus=1), 0)
    cluster.replace_nodes([node])
    shared = SharedDevices(cluster, lambda: str(next(numbers)))
    half = [PlannedDevice("g", NANO_PER_DEVICE // 2)]
    first, second = shared.join(half, node.name), shared.join(half, node.name)
    assert first == second
    assert (first[0].group, first[0].reservation) == ("g", "r-g")
    shared.leave(half)
    assert cluster.pod("r-g") is not None
    shared.leave(half)
    assert cluster.pod("r-g") is None
    with pytest.raises(KeyError):
        shared.leave(half)
