from __future__ import annotations

import logging

import anyio
import pytest

from scheduler.background.loops import Recounting
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.table import GPUS
from scheduler.telemetry.events import LedgerDiffers, SchedulerEvent
from scheduler.watch.cache import Cache
from tests.background import in_background
from tests.scheduler.core.objects import feed, node, pod

VIRTUAL_TIME = True


def made(nodes: int) -> tuple[Cache, list[SchedulerEvent]]:
    cache = Cache(Cluster(Settings()))
    feed(cache.cluster, *(node(f"n{number:03}", gpus=4) for number in range(nodes)), pod("w", gpus=1, bound_to="n003"))
    cache.cluster.refresh()
    return cache, []


async def test_a_ledger_that_is_right_is_left_alone() -> None:
    cache, told = made(40)
    generation = cache.cluster.generation
    async with in_background(Recounting(cache, told.append).run):
        await anyio.sleep(60)
    assert (told, cache.cluster.generation) == ([], generation)


@pytest.mark.parametrize("name", ["n000", "n003", "n039"])
async def test_a_row_that_is_wrong_is_found_on_whatever_node_told_and_mended(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache, told = made(40)
    ledger = cache.cluster.ledger
    ledger.table.free[GPUS, ledger.row_of[name]] += 1
    with caplog.at_level(logging.ERROR):
        async with in_background(Recounting(cache, told.append).run):
            await anyio.sleep(3.5)
    assert told == [LedgerDiffers()]
    assert f"node {name}: nvidia.com/gpu free is" in caplog.text
    cache.cluster.refresh()
    assert cache.cluster.validate() == []


@pytest.mark.parametrize(("nodes", "mended_s"), [(4, 11.5), (40, 13.5), (200, 26.5)])
async def test_a_round_begins_ten_seconds_after_the_one_before_and_not_before_that_has_ended(
    nodes: int, mended_s: float
) -> None:
    """The row of the last node goes wrong when the first round is over, or just has passed it."""
    cache, told = made(nodes)
    ledger, first_round_s = cache.cluster.ledger, -(-nodes // 16) + 0.5
    async with in_background(Recounting(cache, told.append).run):
        await anyio.sleep(first_round_s)
        ledger.table.free[GPUS, ledger.row_of[max(ledger.row_of)]] += 1
        await anyio.sleep(mended_s - 1 - first_round_s)
        assert told == []
        await anyio.sleep(1)
        assert told == [LedgerDiffers()]


async def test_a_node_that_is_to_be_counted_anyway_is_not_judged_before() -> None:
    cache, told = made(2)
    feed(cache.cluster, pod("late", gpus=2, bound_to="n001"))
    recounting = Recounting(cache, told.append)
    recounting.look()
    assert told == []


async def test_without_nodes_there_is_nothing_to_count() -> None:
    cache, told = made(0)
    Recounting(cache, told.append).look()
    assert told == []
