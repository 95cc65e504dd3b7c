"""Room is made in a whole simulated cluster, as far as pods tell: nobody is evicted here yet."""

from __future__ import annotations

import anyio

from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator.world import WorldSettings
from tests.scheduler.stage import bound, settle, stage, waits_because
from tests.scheduler.status.queues import create_queue, gpus, use

MAKES_ROOM = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings(makes_room=True)))


async def test_a_minimum_runtime_is_counted_by_the_wall_clock_and_room_is_made_when_it_is_over() -> None:
    async with stage("1x1x80GiB", settings=MAKES_ROOM) as world:
        await create_queue(world, "a", resources=gpus(quota=1))
        await create_queue(world, "b", reclaimMinRuntime="1m")
        await use(world, "b", "theirs")
        await settle()
        assert bound(world) == {"theirs"}
        await use(world, "a", "mine")
        await anyio.sleep(40)
        assert "Room is being made" not in waits_because(world, "mine")
        await anyio.sleep(40)
        assert waits_because(world, "mine").startswith("Room is being made on node")
