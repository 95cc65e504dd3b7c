"""A tenant that has others evicted, deletes its pod and begins again: it waits longer each time, nobody else does."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import PODS, PRIORITY_CLASSES
from scheduler.core.preemption.eviction_history import MOST
from simulator.world import World
from tests.scheduler.preemption.wholestage import cluster, evictions, urgent
from tests.scheduler.stage import TEAM, create, pod, settle

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
