"""What a comparison says comes true where the change is made."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cli.simulation import comparison as changes
from cli.simulation.comparison import Comparison, Scheduling
from cli.simulation.snapshot import comparison
from cli.snapshots import command, file
from kube.client.resources import NODES, PODS, QUEUES
from scheduler.core.model.settings import Settings
from simulator.world import World
from tests.quick import few
from tests.scheduler import stage
from tests.scheduler.commit.devices import create_claim, devices, offer, using
from tests.scheduler.stage import TEAM, api_of, cordon, create, create_gang, pod, settle, share
from wire import names

VIRTUAL_TIME = True

#: Nobody has a controller here, so nobody may be moved.
SCHEDULING = Scheduling(Settings(preemption=False), 60.0)


async def crowd(world: World, rng: random.Random) -> None:
    """More pods than fit: whole GPUs, shares and gangs."""
    for at in range(rng.randint(8, 14)):
        match rng.randrange(3):
            case 0:
                await create(world, pod(f"p{at}", gpus=rng.choice((1, 1, 2))))
            case 1:
                await create(world, share(f"p{at}", rng.choice(("0.25", "0.5", "0.75"))))
            case _:
                await create_gang(world, f"g{at}", 2, *(pod(f"p{at}-{number}", gpus=1) for number in range(2)))
    await settle()


async def predicted(world: World, *texts: str) -> Comparison:
    found = await command.read_cluster(api_of(world, "someone"), now_ns=world.api.clock.now_ns())
    read_again = file.read(file.write(found))
    result, problems = comparison(read_again, SCHEDULING, changes.read(texts))
    assert problems == ()
    return result


def placed(world: World) -> dict[str, str]:
    mine = (each for each in world.pods if each["metadata"]["namespace"] == TEAM)
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in mine}


def told(result: Comparison, before: dict[str, str]) -> dict[str, str]:
    after = dict(before)
    for each in result.pods:
        if each.change.value == "ends":
            del after[each.name]
        else:
            after[each.name] = each.node_with
    return after


@pytest.mark.parametrize("seed", few(range(8), 4))
async def test_pods_start_where_it_says_when_another_ends(seed: int) -> None:
    rng = random.Random(seed)
    async with stage.stage("3x2x80GiB") as world:
        await crowd(world, rng)
        before = placed(world)
        alone = sorted(name for name, node in before.items() if node and "-" not in name)
        name = rng.choice(alone)
        result = await predicted(world, f"finish {TEAM}/{name}")
        await world.api.delete(PODS, name, namespace=TEAM)
        await settle(120.0)
        assert placed(world) == told(result, before)


async def test_a_cordoned_node_gets_nobody_as_it_says() -> None:
    async with stage.stage("2x2x80GiB") as world:
        await create(world, pod("a", gpus=2))
        await settle()
        (at,) = placed(world).values()
        result = await predicted(world, f"cordon {at}", f"finish {TEAM}/a")
        await cordon(world, at)
        await create(world, pod("b", gpus=2), pod("c", gpus=2))
        await settle()
        assert [each.change.value for each in result.pods] == ["ends"]
        assert sorted(node == at for node in placed(world).values()) == [False, False, True]


async def test_a_queue_with_a_higher_limit_starts_whom_it_says() -> None:
    limited: dict[str, Any] = {"resources": {"gpu": {"quota": 0, "overQuotaWeight": 1, "limit": 1}}}
    written = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "team"}, "spec": limited}
    async with stage.stage("2x2x80GiB") as world:
        await world.api.create(QUEUES, written)
        wanted = [pod(f"p{at}", gpus=1) for at in range(4)]
        for each in wanted:
            each["metadata"]["labels"] = {names.QUEUE_LABEL: "team"}
        await create(world, *wanted)
        await settle()
        before = placed(world)
        assert sum(map(bool, before.values())) == 1
        result = await predicted(world, "limit team gpu=3")
        await world.api.patch(QUEUES, "team", {"spec": {"resources": {"gpu": {"limit": 3}}}})
        await settle()
        assert placed(world) == told(result, before)
        assert [each.change.value for each in result.pods] == ["starts", "starts"]


async def test_further_nodes_bring_devices_for_whom_it_says() -> None:
    async with stage.stage("2x0x80GiB") as world, devices(world, 2, 0) as made:
        await world.api.delete(NODES, "node-1")
        for at in range(4):
            await create_claim(made, f"c{at}")
            await create(world, using(pod(f"p{at}"), f"c{at}"))
            await settle()
        before = placed(world)
        assert sum(map(bool, before.values())) == 2
        result = await predicted(world, "node +1 like node-0")
        assert {each.node_with for each in result.pods} == {"node-0-more-1"}
        assert [each.change.value for each in result.pods] == ["starts", "starts"]
        await world.nodes.register("node-1")
        await offer(made, "node-1", 2)
        await settle()
        supposed = {"node-0-more-1": "node-1"}
        assert placed(world) == {name: supposed.get(at, at) for name, at in told(result, before).items()}
