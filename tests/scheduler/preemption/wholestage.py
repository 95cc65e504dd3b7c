"""A whole simulated cluster on which room is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kube.client.resources import PRIORITY_CLASSES
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.scheduler.stage import pod

SETTINGS = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings()))


@asynccontextmanager
async def cluster(*shapes: str, settings: WorldSettings = SETTINGS) -> AsyncIterator[World]:
    """A cluster on which room is made."""
    world = World(shape.parse(list(shapes)), clock=VirtualClock(asyncio.get_running_loop()), settings=settings)
    async with world:
        await world.api.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 90})
        yield world
        broken = {key: told for key, told in world.finish().items() if told not in SOUND}
        assert broken == {}


def urgent(name: str, **spec: Any) -> dict[str, Any]:
    return pod(name, gpus=1, priorityClassName="urgent", **spec)


def evictions(world: World) -> list[str]:
    return [e.name for e in world.server.audit if e.subresource == "eviction" and e.code < 300]
