"""Whether scheduler and binder work, as their leases say. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import LEASES
from kube.client.retry import Retry
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from ui.leaders import CONFIRM_S, LEADERS, Leaders, by_server
from wire import names
from wire.rfc3339 import rfc3339_micro

VIRTUAL_TIME = True

NO_POD_IS_PLACED = "the scheduler has not renewed its lease for {} s: no pod is placed"
_NS = 1_000_000_000


class Skewed:
    """Another machine's clock."""

    def __init__(self, clock: Clock, by_s: int) -> None:
        self._clock, self._by_s = clock, by_s

    def now_ns(self) -> int:
        return self._clock.now_ns() + self._by_s * _NS


class Cluster:
    """An API server with the two leases, renewed by processes that end when told to."""

    def __init__(self, *, by_s: int = 0) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.server = MemoryApiServer(clock=self.clock, rng=random.Random(1), auto_namespaces=True)
        self.api = Api(self.server.transport(), retry=Retry(random.Random(1), tries=1))
        self._theirs = Skewed(self.clock, by_s)
        self.alive = dict.fromkeys(LEADERS, True)

    def spec(self, **more: Any) -> dict[str, Any]:
        renewed = rfc3339_micro(self._theirs.now_ns())
        return {"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": renewed, **more}}

    async def renew(self) -> None:
        for name in LEADERS:
            await self.api.create(LEASES, {"metadata": {"name": name}, **self.spec()}, namespace=names.SYSTEM_NAMESPACE)
        while True:
            await anyio.sleep(2.0)
            for name in (name for name, lives in self.alive.items() if lives):
                await self.api.patch(LEASES, name, self.spec(), namespace=names.SYSTEM_NAMESPACE)

    async def give_back(self, name: str) -> None:
        self.alive[name] = False
        given = self.spec(holderIdentity=None, leaseDurationSeconds=None)
        await self.api.patch(LEASES, name, given, namespace=names.SYSTEM_NAMESPACE)


@asynccontextmanager
async def at_work(for_s: float, *, by_s: int = 0, dead_s: float | None = None) -> AsyncIterator[Cluster]:
    """A cluster in which leases were renewed for some time. ``dead_s``: how long ago its scheduler died."""
    cluster = Cluster(by_s=by_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.renew)
        await anyio.sleep(for_s)
        if dead_s is not None:
            cluster.alive["moorage-scheduler"] = False
            await anyio.sleep(dead_s)
        yield cluster
        tasks.cancel_scope.cancel()


async def looked(cluster: Cluster) -> tuple[tuple[str, ...], float]:
    """What one look says, and how long it takes."""
    leaders, begun = Leaders(cluster.clock), anyio.current_time()
    await leaders.look(cluster.api)
    return leaders.warnings(), anyio.current_time() - begun


async def test_a_look_at_a_cluster_that_works_says_nothing_and_takes_no_time() -> None:
    async with at_work(31.0) as cluster:
        assert await looked(cluster) == ((), 0.0)


async def test_a_scheduler_that_died_is_told_with_the_time_since_its_last_renewal() -> None:
    async with at_work(30.5, dead_s=35.0) as cluster:
        said, took_s = await looked(cluster)
        assert said == (NO_POD_IS_PLACED.format(40),)
        assert took_s == CONFIRM_S


async def test_one_that_has_just_lost_some_renewals_is_not_called_dead() -> None:
    async with at_work(30.5, dead_s=8.0) as cluster:
        assert await looked(cluster) == ((), 0.0)


@pytest.mark.parametrize("by_s", [-3600, -20, 20, 3600])
async def test_clocks_that_differ_make_nobody_dead(by_s: int) -> None:
    async with at_work(31.0, by_s=by_s) as cluster:
        said, took_s = await looked(cluster)
        assert said == ()
        assert took_s <= 2.0


@pytest.mark.parametrize(
    ("spec", "doubt"),
    [
        ({}, "its last renewal is 3600 s ahead of the API server's clock"),
        ({"renewTime": None}, "its last renewal has no time"),
    ],
)
async def test_a_dead_scheduler_whose_clock_was_ahead_does_not_look_fresh(spec: dict[str, Any], doubt: str) -> None:
    async with at_work(31.0, by_s=3600) as cluster:
        cluster.alive["moorage-scheduler"] = False
        last = cluster.spec(**spec)
        await cluster.api.patch(LEASES, "moorage-scheduler", last, namespace=names.SYSTEM_NAMESPACE)
        said, took_s = await looked(cluster)
        assert said == (f"the scheduler has not renewed its lease for 5 s, and {doubt}: no pod is placed",)
        assert took_s == CONFIRM_S


@pytest.mark.parametrize("by_s", [-3600, -32, 32, 3600])
async def test_a_lease_is_as_old_as_the_api_server_has_it_whatever_the_clock_of_who_reads_says(by_s: int) -> None:
    async with at_work(30.5, dead_s=35.0) as cluster:
        dated, leaders = by_server(cluster.server.transport(), fallback=Skewed(cluster.clock, by_s))
        await leaders.look(Api(dated, retry=Retry(random.Random(1), tries=1)))
        assert leaders.warnings() == (NO_POD_IS_PLACED.format(40),)


async def test_a_clock_that_is_ahead_by_little_needs_no_second_look() -> None:
    async with at_work(31.0, by_s=4) as cluster:
        assert await looked(cluster) == ((), 0.0)


async def test_a_lease_that_was_given_back_or_never_was_there_is_told() -> None:
    cluster = Cluster()
    assert (await looked(cluster))[0] == (
        "no scheduler has worked here yet (there is no lease kai-scheduler/moorage-scheduler): no pod is placed",
        "no binder has worked here yet (there is no lease kai-scheduler/moorage-binder): no pod is bound",
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.renew)
        await anyio.sleep(10.0)
        await cluster.give_back("moorage-binder")
        await anyio.sleep(7.0)
        (said,) = (await looked(cluster))[0]
        assert said == "no binder works: the last one gave its lease back 12 s ago: no pod is bound"
        tasks.cancel_scope.cancel()


async def test_who_follows_is_told_of_an_end_and_of_a_new_beginning() -> None:
    cluster = Cluster()
    leaders = Leaders(cluster.clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.renew)
        await anyio.sleep(1.0)
        tasks.start_soon(leaders.follow, cluster.api)
        await anyio.sleep(60.0)
        assert leaders.warnings() == ()
        cluster.alive["moorage-scheduler"] = False
        await anyio.sleep(14.0)
        assert leaders.warnings() == ()
        await anyio.sleep(27.0)
        (said,) = leaders.warnings()
        assert said.startswith("the scheduler has not renewed its lease for ")
        assert 35 <= int(said.split()[-6]) <= 41
        cluster.alive["moorage-scheduler"] = True
        await anyio.sleep(8.0)
        assert leaders.warnings() == ()
        tasks.cancel_scope.cancel()


async def test_an_api_server_that_does_not_answer_says_nothing_about_a_scheduler() -> None:
    cluster = Cluster()
    leaders = Leaders(cluster.clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.renew)
        await anyio.sleep(1.0)
        tasks.start_soon(leaders.follow, cluster.api)
        await anyio.sleep(10.0)
        cluster.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if call.verb == "get" else None)
        await anyio.sleep(60.0)
        assert leaders.warnings() == ()
        assert leaders.trouble.startswith("leases: ")
        assert leaders.is_settled
        tasks.cancel_scope.cancel()
