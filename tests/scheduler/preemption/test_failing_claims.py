"""A pod with a claim that can't be bound has nobody evicted again for a growing time (L6)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PODS, PRIORITY_CLASSES
from scheduler.core.cluster import Cluster
from scheduler.core.model.preemption import RoomFacts
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock
from simulator.components import PRODUCT, Parts
from simulator.nodes import shape
from simulator.world import World
from tests.conftest import AnyioBackend
from tests.scheduler.commit import devices
from tests.scheduler.commit.storage import create_claim, mounting, storage
from tests.scheduler.preemption.wholestage import SETTINGS, evictions, urgent
from tests.scheduler.stage import TEAM, create, create_gang, phases, pod, settle, waits_because
from tests.simulation.planted.bugs import deciding_on

NODES = 4
HALF_AN_HOUR_S = 1800
SENTENCE = re.compile(
    r"No pod is evicted for it until 2\d{3}-.*Z, since claim (data|device|other-device) could not be bound\.$"
)
Step = Callable[[World], Awaitable[object]]


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


class Full:
    """A pod that is not urgent on each node. As its controller does, another one is made for each that is evicted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._made = 0

    @property
    def running(self) -> set[str]:
        return {name for name, phase in phases(self.world).items() if phase == "Running"}

    async def fill(self) -> None:
        there = sum(name.startswith("v") for name in phases(self.world))
        for _ in range(NODES - there):
            await create(self.world, pod(f"v{self._made}", gpus=1))
            self._made += 1

    async def run(self, seconds: int) -> int:
        """Return how many were evicted meanwhile."""
        before = len(evictions(self.world))
        for _ in range(seconds // 10):
            await self.fill()
            await settle(10)
        return len(evictions(self.world)) - before


@asynccontextmanager
async def full(parts: Parts = PRODUCT, broken: frozenset[str] = frozenset()) -> AsyncIterator[Full]:
    """A full cluster; no volume can be made, and no ResourceClaim be allocated, until that is allowed."""
    nodes = shape.parse([f"{NODES}x1x80GiB"])
    world = World(nodes, clock=VirtualClock(asyncio.get_running_loop()), settings=SETTINGS, parts=parts)
    async with world, storage(world) as made, devices.devices(world, *[1] * NODES):
        made.fails = lambda *_: True
        await world.api.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 90})
        cluster = Full(world)
        await cluster.fill()
        await settle(30)
        yield cluster
        assert {key for key, told in world.finish().items() if told not in SOUND} == broken


async def with_volume(world: World) -> None:
    await create_claim(world.claims, "data")
    await create(world, mounting(urgent("u"), "data"))


async def with_device(world: World) -> None:
    def refuse(call: Call) -> Fault | None:
        is_allocation = (call.user, call.kind.plural, call.subresource) == ("scheduler", "resourceclaims", "status")
        return Fault(refuse_with=403) if is_allocation else None

    world.server.faults.on_request.append(refuse)
    await devices.create_claim(world.resource_claims, "device")
    await create(world, devices.using(urgent("u"), "device"))


async def of_a_gang(world: World) -> None:
    await create_claim(world.claims, "data")
    await create_gang(world, "g", 2, mounting(urgent("u"), "data"), urgent("w"))


async def in_turn(world: World) -> None:
    """Of two claims of a gang none is ever allocated; each time another one is refused first."""

    def refuse(call: Call) -> Fault | None:
        if (call.user, call.kind.plural, call.subresource) != ("scheduler", "resourceclaims", "status"):
            return None
        first = ("device", "other-device")[len(evictions(world)) // 2 % 2]
        return Fault(refuse_with=422, delay_s=0 if call.name == first else 5)

    world.server.faults.on_request.append(refuse)
    for name in ("device", "other-device"):
        await devices.create_claim(world.resource_claims, name)
    await create_gang(world, "g", 2, devices.using(urgent("u"), "device"), devices.using(urgent("w"), "other-device"))


@pytest.mark.parametrize(
    ("begins", "pods"),
    [(with_volume, 1), (with_device, 1), (of_a_gang, 2), (in_turn, 2)],
    ids=["a volume", "a ResourceClaim", "a gang of which one has a volume", "a gang of which another one fails"],
)
async def test_in_half_an_hour_others_are_evicted_three_times(begins: Step, pods: int) -> None:
    async with full() as cluster:
        await begins(cluster.world)
        assert await cluster.run(240) == pods
        assert any(SENTENCE.search(waits_because(cluster.world, name)) for name in ("u", "w")[:pods])
        assert await cluster.run(HALF_AN_HOUR_S - 240) == 2 * pods
        # What was evicted in vain runs again: nothing is kept for a pod that can't use it.
        assert len(cluster.running) == NODES


@pytest.mark.parametrize("begins", [with_volume, with_device], ids=["a volume", "a ResourceClaim"])
async def test_another_leader_knows_what_failed_before(begins: Step) -> None:
    async with full() as cluster:
        await begins(cluster.world)
        assert await cluster.run(240) == 1
        await cluster.world.restart(cluster.world.scheduler)
        assert await cluster.run(HALF_AN_HOUR_S - 240) == 2


class Forgets(Cluster):
    """It is not known that claims failed."""

    @override
    def note_room_facts(self, facts: RoomFacts) -> None:
        super().note_room_facts(RoomFacts(version=facts.version, evicted=facts.evicted, settings=facts.settings))


async def test_a_scheduler_that_knows_nothing_of_failures_is_found() -> None:
    async with full(deciding_on(Forgets), frozenset({"L6"})) as cluster:
        await with_volume(cluster.world)
        assert await cluster.run(600) > 3


async def test_meanwhile_a_place_that_is_free_is_taken_at_once() -> None:
    async with full() as cluster:
        await with_volume(cluster.world)
        await cluster.run(120)
        cluster.world.claims.fails = lambda *_: False
        assert await cluster.run(60) == 0
        await cluster.world.api.delete(PODS, min(cluster.running), namespace=TEAM)
        await settle(60)
        assert "u" in cluster.running


async def test_a_claim_that_was_made_again_keeps_nobody_from_anything() -> None:
    async with full() as cluster:
        world = cluster.world
        await with_volume(world)
        assert await cluster.run(120) == 1
        world.claims.fails = lambda *_: False
        assert await cluster.run(120) == 0
        await world.api.delete(PERSISTENT_VOLUME_CLAIMS, "data", namespace=TEAM)
        await create_claim(world.claims, "data")
        assert await cluster.run(120) == 1
        assert "u" in cluster.running
