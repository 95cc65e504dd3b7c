"""Nobody is evicted in vain (L6): a whole scheduler that drops what it has freed is found by that alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.client.resources import QUEUES
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock
from simulator.components import PRODUCT, Parts
from simulator.nodes import shape
from simulator.world import World
from tests.conftest import AnyioBackend
from tests.scheduler.preemption.test_writes_of_room import of, queue
from tests.scheduler.preemption.wholestage import SETTINGS, evictions
from tests.scheduler.stage import bound, create, settle
from tests.simulation.planted.bugs import deciding_on
from tests.simulation.planted.rooms import DropsWhatIsFree


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize(
    ("parts", "runs", "broken"),
    [(PRODUCT, "h", set[str]()), (deciding_on(DropsWhatIsFree), "k", {"L6"})],
    ids=["as it is", "drops what it has freed"],
)
async def test_a_scheduler_that_gives_what_was_freed_to_somebody_else_is_found(
    parts: Parts, runs: str, broken: set[str]
) -> None:
    world = World(
        shape.parse(["1x1x80GiB"]), clock=VirtualClock(asyncio.get_running_loop()), settings=SETTINGS, parts=parts
    )
    async with world:
        await taken_back(world)
        assert evictions(world) == ["v"]
        assert bound(world) == {runs}
        found: dict[str, Any] = {key: told for key, told in world.finish().items() if told not in SOUND}
        assert found.keys() == broken, found


async def taken_back(world: World) -> None:
    """The one GPU is owed to the team of ``h``; ``k`` waits for it as well."""
    for name, gpus in (("owed", 1), ("over", 0)):
        await world.api.create(QUEUES, queue(name, gpus))
    await create(world, of("v", "over"))
    await settle(30)
    await create(world, of("k", "over"))
    await settle(30)
    await create(world, of("h", "owed"))
    await settle(160)
    await create(world, of("later", "over"))
    await settle(10)
