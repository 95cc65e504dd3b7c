"""The real scheduler on a simulated cluster: pods are evicted for others, which then run in their place."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PODS, PRIORITY_CLASSES, QUEUES
from kube.lead.lease import LeaseSettings
from scheduler.core.cluster import Cluster
from scheduler.core.model.preemption import PreemptionFacts
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.eviction_history import MOST
from scheduler.settings import SchedulerSettings
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock
from simulator.components import PRODUCT, Parts
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.quick import few_rows
from tests.scheduler.commit import devices
from tests.scheduler.commit.storage import create_claim, mounting, storage
from tests.scheduler.preemption.test_writes_of_preemption import of, queue
from tests.scheduler.preemption.wholestage import SETTINGS, cluster, evictions, urgent
from tests.scheduler.stage import TEAM, bound, create, create_gang, phases, pod, settle, waits_because
from tests.simulation.planted.bugs import deciding_on
from tests.simulation.planted.queues import DropsWhatIsFree
from tests.simulator.apiserver.calls import send


async def test_without_the_setting_nobody_is_evicted_and_no_record_is_read() -> None:
    own = SchedulerSettings(decisions=Settings(preemption=False), wait_for_config_maps=False)
    settings = WorldSettings(seed=1, scheduler=own)
    async with cluster("1x1x80GiB", settings=settings) as world:
        await create(world, pod("p", gpus=1))
        await settle()
        await create(world, urgent("h"))
        await settle(60)
        assert phases(world) == {"p": "Running", "h": "Pending"}
        kinds = {"configmaps", "poddisruptionbudgets"}
        assert not [e for e in world.server.audit if e.user == "scheduler" and e.resource in kinds]


@pytest.mark.parametrize("election", [None, LeaseSettings()], ids=["both work", "one leads"])
async def test_two_schedulers_evict_as_many_as_are_needed(election: LeaseSettings | None) -> None:
    settings = msgspec.structs.replace(SETTINGS, schedulers=2, election=election)
    async with cluster("2x4x80GiB", settings=settings) as world:
        await create(world, *(pod(f"p{i}", gpus=1) for i in range(8)))
        await settle(30)
        assert len(bound(world)) == 8
        await create(world, *(urgent(f"h{i}") for i in range(4)))
        await settle(120)
        assert {phases(world)[f"h{i}"] for i in range(4)} == {"Running"}
        assert len(set(evictions(world))) == len(evictions(world)) == 4


async def test_what_a_leader_that_died_has_freed_is_kept_for_its_nominee() -> None:
    settings = msgspec.structs.replace(SETTINGS, schedulers=2, election=LeaseSettings())
    async with cluster("1x1x80GiB", settings=settings) as world:
        await create(world, pod("p", gpus=1, terminationGracePeriodSeconds=30))
        await settle(30)
        await create(world, urgent("h"))
        await settle(0.5)
        assert evictions(world) == ["p"]
        leader = next(e.user for e in world.server.audit if e.subresource == "eviction")
        world.components[leader].crash()
        await create(world, urgent("thief"))  # it is as urgent, and comes later
        await settle(120)
        assert phases(world) == {"h": "Running", "thief": "Pending"}


async def test_a_pod_whose_budget_is_spent_stays_and_another_one_goes() -> None:
    async with cluster("1x2x80GiB") as world:
        kept, goes = pod("kept", gpus=1), pod("goes", gpus=1)
        kept["metadata"]["labels"] = {"app": "a"}
        await create(world, kept, goes)
        await settle()
        client = world.server.transport()
        selector = {"matchLabels": {"app": "a"}}
        budgets = f"/apis/policy/v1/namespaces/{TEAM}/poddisruptionbudgets"
        await send(client, "POST", budgets, {"metadata": {"name": "b"}, "spec": {"selector": selector}})
        status = {"observedGeneration": 1, "disruptionsAllowed": 0}
        await send(client, "PATCH", f"{budgets}/b/status", {"status": status})
        await settle(1)
        await create(world, urgent("h"), urgent("i"))
        await settle(300)
        assert evictions(world) == ["goes"]
        assert phases(world)["kept"] == "Running"
        assert sorted(phases(world)[name] for name in ("h", "i")) == ["Pending", "Running"]
        asked = [e for e in world.server.audit if e.subresource == "eviction"]
        assert len(asked) == 1  # it was counted in advance, and nobody was asked in vain
        waiting = next(name for name in ("h", "i") if phases(world)[name] == "Pending")
        found = await world.api.get(PODS, waiting, namespace=TEAM)
        (condition,) = [each for each in found.status.conditions or () if each.type == "PodScheduled"]
        assert "1 pod that could be evicted for it is protected. A PodDisruptionBudget allows" in condition.message


# Nobody is evicted in vain (L6): a whole scheduler that drops what it has freed is found by that alone.


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


# A tenant that has others evicted, deletes its pod and begins again: it waits longer each time, nobody else does.

GREEDY = "greedy"


async def put(world: World, body: dict[str, Any], namespace: str = GREEDY) -> None:
    await world.api.create(
        PODS, {**body, "metadata": {**body["metadata"], "namespace": namespace}}, namespace=namespace
    )


async def there(world: World, namespace: str) -> dict[str, str]:
    """Phases of pods that are not on their way out, by name."""
    listed = await world.api.list(PODS, namespace=namespace)
    return {each.metadata.name: each.status.phase for each in listed.items if each.metadata.deletion_timestamp is None}


async def churn(world: World, *, seconds: int, groups: int) -> None:
    """As many urgent pods at a time as ``groups``, each under another name, deleted as soon as one runs."""
    number = 0
    for _ in range(seconds // 10):
        mine = await there(world, GREEDY)
        for name in [name for name, phase in mine.items() if phase == "Running"]:
            await world.api.delete(PODS, name, namespace=GREEDY, grace_s=0)
            del mine[name]
        for at in range(8 - len(await there(world, TEAM))):  # the others' controller makes theirs again
            number += 1
            await create(world, pod(f"v{number}-{at}", gpus=1))
        await settle(5)
        for _ in range(groups - len(mine)):
            number += 1
            await put(world, urgent(f"h{number}"))
        await settle(5)


@pytest.mark.parametrize("groups", [1, 3])
async def test_a_tenant_that_gives_up_what_it_took_evicts_a_few(groups: int) -> None:
    async with cluster("1x8x80GiB") as world:
        await create(world, *(pod(f"v{at}", gpus=1) for at in range(8)))
        await settle()
        await churn(world, seconds=900, groups=groups)
        assert 2 <= len(evictions(world)) <= MOST  # one each ten seconds without a bound
        waiting = [name for name, phase in (await there(world, GREEDY)).items() if phase == "Pending"]
        said = [await world.api.get(PODS, name, namespace=GREEDY) for name in waiting]
        messages = [each.message for found in said for each in found.status.conditions or () if each.status == "False"]
        assert any("ended again and again soon after others were evicted for them" in each for each in messages)
        # Nobody else waits.
        before = len(evictions(world))
        await put(world, urgent("honest"), namespace="honest")
        await settle(30)
        assert (await there(world, "honest"))["honest"] == "Running"
        assert len(evictions(world)) == before + 1


async def test_the_next_leader_knows_who_gave_up() -> None:
    async with cluster("1x8x80GiB") as world:
        await create(world, *(pod(f"v{at}", gpus=1) for at in range(8)))
        await settle()
        await churn(world, seconds=200, groups=1)
        before = len(evictions(world))
        scheduler = world.components["scheduler"]
        scheduler.crash()
        await settle(1)
        await churn(world, seconds=200, groups=1)
        assert len(evictions(world)) - before <= 2


async def test_what_a_tenant_took_is_not_kept_because_a_pod_of_its_own_takes_it_over() -> None:
    async with cluster("1x1x80GiB") as world:
        await world.api.create(PRIORITY_CLASSES, {"metadata": {"name": "first"}, "value": 95})
        for number in range(40):
            await create(world, pod(f"v{number}", gpus=1))
            await settle(5)
            await put(world, urgent(f"h{number}"))
            await settle(5)
            await put(world, pod(f"f{number}", gpus=1, priorityClassName="first"))
            await settle(5)
            for name in await there(world, GREEDY):
                await world.api.delete(PODS, name, namespace=GREEDY, grace_s=0)
            await settle(5)
            for name in await there(world, TEAM):
                await world.api.delete(PODS, name, namespace=TEAM, grace_s=0)
        assert 2 <= len([name for name in evictions(world) if name.startswith("v")]) <= MOST


# A pod with a claim that can't be bound has nobody evicted again for a growing time (L6).

NODES = 4
HALF_AN_HOUR_S = 1800
SENTENCE = re.compile(
    r"No pod is evicted for it until 2\d{3}-.*Z, since claim (data|device|other-device) could not be bound\.$"
)
Step = Callable[[World], Awaitable[object]]


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
    few_rows([(with_volume, 1), (with_device, 1), (of_a_gang, 2), (in_turn, 2)], 4),
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
    def note_preemption_facts(self, facts: PreemptionFacts) -> None:
        super().note_preemption_facts(
            PreemptionFacts(version=facts.version, evicted=facts.evicted, settings=facts.settings)
        )


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
