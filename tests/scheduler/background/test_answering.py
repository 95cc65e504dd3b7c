"""A node that does not answer costs seconds, not the time-out of an attempt, and slow nodes cost nothing more."""

from __future__ import annotations

import anyio
import pytest

from kube.client.resources import NODES, PODS
from scheduler.background.loops import JoiningNodes
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import NodePool, Settings
from scheduler.watch.cache import Cache
from scheduler.watch.sinks import NodeSink
from simulator.nodes.shape import ReservationFault
from simulator.world import World
from tests.background import in_background
from tests.scheduler import stage
from tests.scheduler.core.objects import node
from tests.scheduler.stage import bound, create, find, settle, share, waits_because, writes
from wire import names

BAD, GOOD = "node-0", "node-1"


def _withdrawn(world: World) -> int:
    """BindRequests that the scheduler took back."""
    return len(writes(world, "scheduler", "bindrequests", verb="delete"))


def _node_of(world: World, name: str) -> str:
    return str(find(world, name)["spec"].get("nodeName", ""))


async def _prove(world: World) -> None:
    """Let the other nodes show that they answer: the bad one is not there yet."""
    await stage.cordon(world, BAD)
    await create(world, share("first", "0.9"))
    await settle(5)
    assert bound(world) == {"first"}
    await world.api.patch(NODES, BAD, {"spec": {"unschedulable": False}})
    await settle(1)


async def test_shares_are_moved_from_a_node_that_does_not_answer() -> None:
    async with stage.stage("2x2x80GiB") as world:
        await _prove(world)
        await create(world, stage.pod("filler", gpus=1, nodeSelector={names.HOSTNAME_LABEL: BAD}))
        await settle(1)
        world.nodes[BAD].faults.reservation = ReservationFault(silent=True)
        await create(world, *(share(f"p{number}", "0.25") for number in range(4)))
        await settle(1)
        assert bound(world) == {"first", "filler"}
        await settle(11)
        assert bound(world) >= {"p0", "p1", "p2", "p3"}
        assert {_node_of(world, f"p{number}") for number in range(4)} == {GOOD}
        assert _withdrawn(world) == 1


async def test_the_others_are_told_that_their_node_is_on_probation_and_run_when_it_answers() -> None:
    async with stage.stage("1x4x80GiB") as world:
        world.nodes[BAD].faults.reservation = ReservationFault(silent=True)
        await create(world, share("a", "0.7"))
        await settle(60)
        await create(world, share("b", "0.7"), share("c", "0.7"))
        await settle(50)
        assert bound(world) == set()
        waiting = [name for name in ("a", "b", "c") if "retried with one pod at a time" in waits_because(world, name)]
        assert waiting
        world.nodes[BAD].faults.reservation = ReservationFault()
        await settle(300)
        assert bound(world) == {"a", "b", "c"}


async def test_a_node_that_comes_back_and_still_does_not_answer_is_late_again() -> None:
    async with stage.stage("2x1x80GiB") as world:
        await _prove(world)
        world.nodes[BAD].faults.reservation = ReservationFault(silent=True)
        await create(world, share("p", "0.5"))
        await settle(12)
        for ready in ("False", "True"):
            conditions = [{"type": "Ready", "status": ready}]
            await world.api.patch(NODES, BAD, {"status": {"conditions": conditions}}, subresource="status")
            await settle(1)
        await settle(11)
        await world.api.delete(PODS, "first", namespace=stage.TEAM)
        await settle(5)
        assert _node_of(world, "p") == GOOD


async def test_a_node_that_has_come_round_is_used_again_when_it_is_needed() -> None:
    async with stage.stage("2x1x80GiB") as world:
        await _prove(world)
        world.nodes[BAD].faults.reservation = ReservationFault(silent=True)
        await create(world, share("p", "0.5"))
        await settle(12)
        assert bound(world) == {"first"}  # no room elsewhere
        await world.api.delete(PODS, "first", namespace=stage.TEAM)
        await settle(10)
        assert _node_of(world, "p") == GOOD
        world.nodes[BAD].faults.reservation = ReservationFault()
        await create(world, share("q", "0.9"))
        await settle(20)
        assert _node_of(world, "q") == BAD


# A node that came from another node pool takes nobody until what was on its way from there has arrived.

KEY = names.NODE_POOL_LABEL
SETTLE_S = 15.0


def _cache(*, is_divided: bool = True) -> tuple[Cache, NodeSink]:
    cache = Cache(Cluster(Settings(pool=NodePool(value="a") if is_divided else None)))
    return cache, NodeSink(cache)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_node_settles_after_its_time_whether_it_came_before_the_term_or_in_it(is_first: bool) -> None:
    cache, sink = _cache()
    sink.upsert(node("n", labels={KEY: "b"}))
    async with anyio.create_task_group() as tasks:
        if not is_first:
            tasks.start_soon(JoiningNodes(cache, settle_s=SETTLE_S).run)
            await anyio.sleep(100)
        sink.upsert(node("n", labels={KEY: "a"}))
        if is_first:
            tasks.start_soon(JoiningNodes(cache, settle_s=SETTLE_S).run)
        await cache.wake.wait()
        await anyio.sleep(SETTLE_S - 1)
        assert [*cache.cluster.joining] == ["n"]
        await anyio.sleep(2)
        assert [*cache.cluster.joining] == []
        with anyio.fail_after(1):  # a decision has to follow
            await cache.wake.wait()
        tasks.cancel_scope.cancel()


async def test_each_node_has_its_own_time_and_other_news_of_it_does_not_make_it_longer() -> None:
    cache, sink = _cache()
    await sink.replace([sink.keep(node(name, labels={KEY: "b"})) for name in "mn"])
    async with in_background(JoiningNodes(cache, settle_s=SETTLE_S).run):
        sink.upsert(node("m", labels={KEY: "a"}))
        await anyio.sleep(10)
        sink.upsert(node("n", labels={KEY: "a"}))
        sink.upsert(node("m", labels={KEY: "a", "more": "labels"}))
        await anyio.sleep(6)
        assert [*cache.cluster.joining] == ["n"]
        await anyio.sleep(10)
        assert [*cache.cluster.joining] == []


async def test_the_time_of_a_node_that_left_in_between_begins_again() -> None:
    cache, sink = _cache()
    sink.upsert(node("n", labels={KEY: "b"}))
    async with in_background(JoiningNodes(cache, settle_s=SETTLE_S).run):
        sink.upsert(node("n", labels={KEY: "a"}))
        await anyio.sleep(10)
        for pool in ("b", "a"):
            sink.upsert(node("n", labels={KEY: pool}))
        await anyio.sleep(14)
        assert [*cache.cluster.joining] == ["n"]
        await anyio.sleep(2)
        assert [*cache.cluster.joining] == []


async def test_a_cluster_that_is_not_divided_has_none() -> None:
    cache, sink = _cache(is_divided=False)
    for pool in ("b", "a"):
        sink.upsert(node("n", labels={KEY: pool}))
    assert [*cache.cluster.joining] == []
