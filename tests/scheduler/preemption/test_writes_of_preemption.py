"""What it writes to take a pod back and start another one: at most four writes, however many there are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import msgspec
import pytest

from kube.client.resources import EVENTS, POD_GROUPS, QUEUES
from scheduler.conditions.pod_scheduled import EVICTING_PER_S
from scheduler.preemption.evictor import OF_GROUP, OF_NAMESPACE
from simulator.nodes.shape import KubeletSettings
from simulator.world import World
from tests.quick import few
from tests.scheduler.preemption.wholestage import SETTINGS, cluster
from tests.scheduler.stage import TEAM, bound, create, pod, settle, waits_because
from wire import names

NODES, GPUS = 10, 8
COUNT = NODES * GPUS
MOST = 4


def queue(name: str, gpus: int) -> dict[str, Any]:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": free, "memory": free, "gpu": {**free, "quota": gpus}}
    return {"metadata": {"name": name}, "spec": {"resources": resources}}


def of(name: str, team: str, group: str = "", **spec: Any) -> dict[str, Any]:
    made = pod(name, gpus=1, annotations={names.POD_GROUP_NAME: group} if group else {}, **spec)
    made["metadata"]["labels"] = {names.QUEUE_LABEL: team}
    return made


async def filled(world: World, *, in_gangs: bool) -> None:
    """A team has all GPUs, and owes all of them to another one. ``in_gangs``: all pods of each are one gang."""
    for name, gpus in (("owed", COUNT), ("over", 0)):
        await world.api.create(QUEUES, queue(name, gpus))
        gang = {"metadata": {"name": name}, "spec": {"minMember": COUNT, "queue": name}}
        await world.api.create(POD_GROUPS, gang, namespace=TEAM)
    await create(world, *(of(f"r{number}", "over", "over" if in_gangs else "") for number in range(COUNT)))
    await settle(120)
    assert len(bound(world)) == COUNT
    world.server.audit.clear()


def written(world: World) -> Counter[str]:
    """What the scheduler wrote, by kind."""
    changes = (e for e in world.server.audit if e.verb not in {"get", "list", "watch"} and e.resource != "leases")
    mine = (e for e in changes if e.user == "scheduler")
    return Counter(f"{entry.verb} {entry.resource} {entry.subresource}".strip() for entry in mine)


async def events(world: World, reason: str) -> list[tuple[int, str]]:
    """How often each event of a reason was said, and its note."""
    found = (await world.api.list(EVENTS, namespace=TEAM)).items
    return [(each.series.count if each.series else 1, each.note or "") for each in found if each.reason == reason]


@pytest.mark.parametrize("between_s", few([0.0, 0.01], 2), ids=["at once", "one after the other"])
@pytest.mark.parametrize("in_gangs", [False, True], ids=["alone", "in gangs"])
async def test_a_pod_taken_back_and_started_costs_at_most_four_writes(in_gangs: bool, between_s: float) -> None:
    async with cluster(f"{NODES}x{GPUS}x80GiB") as world:
        await filled(world, in_gangs=in_gangs)
        for number in range(COUNT):
            await create(world, of(f"a{number}", "owed", "owed" if in_gangs else ""))
            await anyio.sleep(between_s)
        await settle(90)
        assert bound(world) == {f"a{number}" for number in range(COUNT)}
        found = written(world)
        assert found["create pods eviction"] == found["create pods binding"] == COUNT
        assert "patch pods status" not in found
        assert found.total() <= MOST * COUNT, found
        said = await events(world, names.REASON_EVICT)
        assert sum(count for count, _ in said) == COUNT
        assert len(said) == 1 + (OF_GROUP if in_gangs else OF_NAMESPACE)


async def test_a_pod_whose_victim_takes_its_time_says_once_for_what_it_waits() -> None:
    settings = msgspec.structs.replace(SETTINGS, kubelet=KubeletSettings(stop_s=25.0))
    async with cluster("1x1x80GiB", settings=settings) as world:
        for name, gpus in (("owed", 1), ("over", 0)):
            await world.api.create(QUEUES, queue(name, gpus))
        await create(world, of("r", "over", terminationGracePeriodSeconds=30))
        await settle(30)
        world.server.audit.clear()
        await create(world, of("a", "owed"))
        await settle(9)
        assert "patch pods status" not in written(world)
        await settle(5)
        assert waits_because(world, "a").startswith("Pods on node")
        await settle(30)
        assert bound(world) == {"a"}
        assert written(world)["patch pods status"] == 1


@pytest.mark.thorough
async def test_of_many_pods_whose_victims_take_their_time_a_few_a_second_say_for_what_they_wait() -> None:
    stops_s, most = 12.0, 3 * EVICTING_PER_S
    settings = msgspec.structs.replace(SETTINGS, kubelet=KubeletSettings(stop_s=stops_s))
    async with cluster(f"{NODES}x{GPUS}x80GiB", settings=settings) as world:
        for name, gpus in (("owed", COUNT), ("over", 0)):
            await world.api.create(QUEUES, queue(name, gpus))
        await create(world, *(of(f"r{number}", "over", terminationGracePeriodSeconds=30) for number in range(COUNT)))
        await settle(60)
        world.server.audit.clear()
        await create(world, *(of(f"a{number}", "owed") for number in range(COUNT)))
        await settle(90)
        assert bound(world) == {f"a{number}" for number in range(COUNT)}
        assert EVICTING_PER_S < written(world)["patch pods status"] < most < COUNT
