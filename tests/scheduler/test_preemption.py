"""Room is made in a whole simulated cluster, when it may be."""

from __future__ import annotations

import anyio

from tests.scheduler.conditions.queues import create_queue, gpus, use
from tests.scheduler.preemption.wholestage import cluster
from tests.scheduler.stage import bound, settle


async def test_a_minimum_runtime_is_counted_by_the_wall_clock_and_room_is_made_when_it_is_over() -> None:
    async with cluster("1x1x80GiB") as world:
        await create_queue(world, "a", resources=gpus(quota=1))
        await create_queue(world, "b", reclaimMinRuntime="1m")
        await use(world, "b", "theirs")
        await settle()
        assert bound(world) == {"theirs"}
        await use(world, "a", "mine")
        await anyio.sleep(40)
        assert bound(world) == {"theirs"}
        await anyio.sleep(40)
        assert bound(world) == {"mine"}
