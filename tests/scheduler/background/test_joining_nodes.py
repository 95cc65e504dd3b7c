"""A node that came from another node pool takes nobody until what was on its way from there has arrived."""

from __future__ import annotations

import anyio
import pytest

from scheduler.background.loops import JoiningNodes
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import NodePool, Settings
from scheduler.watch.cache import Cache
from scheduler.watch.sinks import NodeSink
from tests.scheduler.core.objects import node
from wire import names

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
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(JoiningNodes(cache, settle_s=SETTLE_S).run)
        sink.upsert(node("m", labels={KEY: "a"}))
        await anyio.sleep(10)
        sink.upsert(node("n", labels={KEY: "a"}))
        sink.upsert(node("m", labels={KEY: "a", "more": "labels"}))
        await anyio.sleep(6)
        assert [*cache.cluster.joining] == ["n"]
        await anyio.sleep(10)
        assert [*cache.cluster.joining] == []
        tasks.cancel_scope.cancel()


async def test_the_time_of_a_node_that_left_in_between_begins_again() -> None:
    cache, sink = _cache()
    sink.upsert(node("n", labels={KEY: "b"}))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(JoiningNodes(cache, settle_s=SETTLE_S).run)
        sink.upsert(node("n", labels={KEY: "a"}))
        await anyio.sleep(10)
        for pool in ("b", "a"):
            sink.upsert(node("n", labels={KEY: pool}))
        await anyio.sleep(14)
        assert [*cache.cluster.joining] == ["n"]
        await anyio.sleep(2)
        assert [*cache.cluster.joining] == []
        tasks.cancel_scope.cancel()


async def test_a_cluster_that_is_not_divided_has_none() -> None:
    cache, sink = _cache(is_divided=False)
    for pool in ("b", "a"):
        sink.upsert(node("n", labels={KEY: pool}))
    assert [*cache.cluster.joining] == []
