"""Prices follow the pods that come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from typing_extensions import override

from kube.lead.lease import LeaseSettings
from scheduler.app import Scheduler
from scheduler.background.loops import Pricing
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Alone
from scheduler.core.model.pod_kind import LEAST_PODS
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.scores.prices import ARRIVAL, Prices, prices_of, typical_of
from scheduler.settings import PricingSettings, SchedulerSettings
from scheduler.watch.cache import Cache
from simulator import manifests
from simulator.clock import VirtualClock
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.scheduler.core.objects import bound, feed, next_rv, node, pod, reservation

NANO = 1_000_000_000
_SETTINGS = PricingSettings()


def _cluster() -> Cluster:
    """Two nodes on which a share of 0.3 finds a device with 0.5 free, and one with 0.4."""
    made = Cluster(Settings(gpu_strategy=Strategy.PRICED))
    held = (("a", "n1", 5), ("b", "n2", 6))
    used = [reservation(g, on, book={f"t{g}": tenths * NANO // 10}, uuid=f"GPU-{g}") for g, on, tenths in held]
    feed(made, node("n1"), node("n2"), *used)
    return made


def _come(made: Cluster, share: str, pods: int, first: int = 0) -> None:
    nano = round(float(share) * NANO)
    for number in range(first, first + pods):
        # on a node that nobody knows: what is usual matters here, not what is free
        feed(made, bound(pod(f"come-{share}-{number}", fraction=share), "elsewhere", (f"g{share}-{number}", nano)))


def _goes_to(made: Cluster) -> str:
    """Where the next share of 0.3 would go."""
    name = f"next-{next_rv()}"
    feed(made, pod(name, fraction="0.3"))
    (placed,) = [entry.placement.node for entry in made.decide(0).entries if isinstance(entry, Alone)]
    made.remove_pod(f"uid-{name}")
    return placed


@asynccontextmanager
async def _priced(made: Cluster, settings: PricingSettings = _SETTINGS) -> AsyncIterator[Pricing]:
    pricing = Pricing(Cache(made), settings)
    pricing.begin()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pricing.run)
        yield pricing
        tasks.cancel_scope.cancel()


#: With shares of 0.4 usual, 0.4 free is worth one, and 0.5 no more: the 0.3 takes either from a usual share, and the
#: tighter piece is taken. With 0.2 usual, 0.5 free keeps one of its two, and so does 0.4 none.
_TIGHTER, _OTHER = "n2", "n1"


async def test_a_young_cluster_packs_tightly_and_prices_come_with_the_pods() -> None:
    made = _cluster()
    async with _priced(made):
        assert _goes_to(made) == _TIGHTER
        _come(made, "0.2", LEAST_PODS)
        assert _goes_to(made) == _TIGHTER, "prices stand still until the next look"
        await anyio.sleep(_SETTINGS.look_s + 1)
        assert _goes_to(made) == _OTHER


async def test_a_scheduler_that_starts_goes_by_the_pods_that_run() -> None:
    made = _cluster()
    _come(made, "0.2", LEAST_PODS)
    async with _priced(made):
        assert _goes_to(made) == _OTHER


async def test_a_mix_that_hardly_moves_is_looked_at_again_after_the_period() -> None:
    made = _cluster()
    _come(made, "0.2", 10 * LEAST_PODS)
    async with _priced(made):
        before = made.generation
        _come(made, "0.2", 1, first=1_000)
        _come(made, "0.7", 40)
        await anyio.sleep(_SETTINGS.every_s - _SETTINGS.look_s)
        after_pods = made.generation
        await anyio.sleep(2 * _SETTINGS.look_s)
        assert before < after_pods < made.generation, "new prices are a change"


async def test_what_came_long_ago_counts_less_and_less() -> None:
    made = _cluster()
    _come(made, "0.2", 2 * LEAST_PODS)
    async with _priced(made):
        await anyio.sleep(3 * _SETTINGS.half_life_s + _SETTINGS.every_s)
        assert _goes_to(made) == _TIGHTER, "fewer than are enough are known"


class _Told(Cluster):
    """Says that it was given prices."""

    def __init__(self) -> None:
        super().__init__(Settings(gpu_strategy=Strategy.PRICED))
        self.given: list[Prices | None] = []
        self.was_given = anyio.Event()

    @override
    def note_prices(self, prices: Prices | None) -> None:
        super().note_prices(prices)
        self.given.append(prices)
        self.was_given.set()


def test_prices_made_beside_the_loop_are_the_same() -> None:
    async def made_beside() -> list[Prices | None]:
        made = _Told()
        async with _priced(made, PricingSettings(look_s=0.0, in_thread=True)):
            made.was_given = anyio.Event()
            _come(made, "0.2", LEAST_PODS)
            with anyio.fail_after(60):
                await made.was_given.wait()
        expected = prices_of(typical_of(made.arrivals.counts()))
        assert made.given[-1] == expected
        return made.given

    assert len(set(anyio.run(made_beside))) == 2


_SHARE = """
apiVersion: v1
kind: Pod
metadata: {name: p%d, annotations: {gpu-fraction: "0.4"}}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, image: work, resources: {requests: {cpu: 2}}}]
"""


async def test_a_simulated_scheduler_learns_prices_from_the_pods_that_it_binds() -> None:
    decisions = Settings(gpu_strategy=Strategy.PRICED, cpu_strategy=Strategy.PRICED)
    settings = WorldSettings(scheduler=SchedulerSettings(decisions=decisions))
    clock = VirtualClock(asyncio.get_running_loop())
    async with World(shape.parse(["4x8x80GiB"]), clock=clock, settings=settings) as world:
        await world.apply(made for number in range(LEAST_PODS) for made in manifests.load(_SHARE % number))
        assert await world.until_idle()
        await anyio.sleep(_SETTINGS.every_s + _SETTINGS.look_s)
        scheduler = world.running["scheduler"]
        assert isinstance(scheduler, Scheduler)
        counts = scheduler.cache.cluster.arrivals.counts()
        assert sum(counts.values()) == LEAST_PODS * ARRIVAL
        prices = scheduler.cache.cluster.prices
        assert prices
        assert prices.pieces_nano[399] < NANO // 100, "0.39 holds no usual share"
        assert prices.core_nano == NANO // 5, "two cores for 0.4 of a GPU"


@pytest.mark.parametrize("strategy", [Strategy.PRICED, Strategy.BINPACK])
async def test_what_came_long_ago_counts_less_whether_a_replica_leads_or_not(strategy: Strategy) -> None:
    decisions = Settings(gpu_strategy=strategy)
    scheduler = SchedulerSettings(decisions=decisions, pricing=PricingSettings(half_life_s=120.0))
    settings = WorldSettings(schedulers=2, election=LeaseSettings(), scheduler=scheduler)
    clock = VirtualClock(asyncio.get_running_loop())
    async with World(shape.parse(["1x8x80GiB"]), clock=clock, settings=settings) as world:
        await world.apply(made for number in range(8) for made in manifests.load(_SHARE % number))
        assert await world.until_idle()
        await anyio.sleep(450.0)
        both = [each.cache.cluster for each in world.running.values() if isinstance(each, Scheduler)]
        assert [sum(each.arrivals.counts().values()) for each in both] == [8 * ARRIVAL // 8] * 2
