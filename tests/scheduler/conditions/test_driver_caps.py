"""Hard memory caps from admission to the container's environment, through the API server in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.settings import Choices
from admission.settings import Settings as AdmissionSettings
from gpu.dialects.settings import DialectSettings
from simulator.nodes import containers as environment
from simulator.world import World, WorldSettings
from tests.gpu import memoryhook
from tests.scheduler import stage
from tests.scheduler.conditions.test_enforcing import annotate, told
from tests.scheduler.stage import create, find, phases, pod, settle, writes
from wire import core, names

SETTINGS = WorldSettings(
    seed=1, admission=AdmissionSettings(choices=Choices(dialects=DialectSettings(driver_memory_caps=True)))
)


def asking(name: str, mib: int, env: list[dict[str, str]] | None = None, *, containers: int = 1) -> dict[str, Any]:
    wanted = pod(name)
    wanted["spec"]["containers"] = [
        {
            "name": f"c{index}",
            "image": "cuda-app",
            "env": env or [],
            "resources": {"limits": {"nvidia.com/gpumem": str(mib + index)}},
        }
        for index in range(containers)
    ]
    return wanted


def limits(world: World, name: str) -> list[tuple[int, int] | None]:
    """What the hook would set for each container."""
    read = msgspec.convert(find(world, name), core.Pod)
    found = []
    for container in read.spec.containers:
        made = environment.resolve(read, container, sources={}, assigned=(), image={})
        assert isinstance(made, dict)
        found.append(memoryhook.limits(made))
    return found


async def test_a_pod_waits_for_a_node_whose_driver_caps_and_its_containers_read_their_caps_there() -> None:
    async with stage.stage("1x2x40GiB", settings=SETTINGS) as world:
        await annotate(world, "memory-cap")
        await create(world, asking("a", 3000, containers=2))
        await settle(30)
        assert "1 node(s) have no GPU memory caps by the driver" in stage.waits_because(world, "a")
        await annotate(world, "memory-cap=driver")
        await settle(30)
        assert phases(world) == {"a": "Running"}
        assert limits(world, "a") == [(0, 3000), (0, 3001)]
        assert told(world, "a") == []


async def test_a_node_that_loses_the_word_while_a_pod_is_being_bound_does_not_get_it() -> None:
    async with stage.stage("1x2x40GiB", settings=SETTINGS) as world:
        await annotate(world, "memory-cap=driver")
        await create(world, asking("a", 3000))
        await settle(0.5)
        # Its reservation is there, and its device is not told yet.
        assert writes(world, "binder", "pods")
        assert not writes(world, "binder", "pods", "binding")
        await annotate(world, "memory-cap")
        await settle(60)
        assert phases(world) == {"a": "Pending"}
        assert writes(world, "binder", "pods", "binding") == []
        because = find(world, "a")["metadata"]["annotations"][names.FENCED_BECAUSE]
        assert because == "NotEnforced: node node-0 does not say memory-cap=driver any more"
        assert "1 node(s) have no GPU memory caps by the driver" in stage.waits_because(world, "a")
        await annotate(world, "memory-cap=driver")
        await settle(60)
        assert phases(world) == {"a": "Running"}
        assert limits(world, "a") == [(0, 3000)]


async def test_a_further_share_on_a_node_with_the_word_is_bound_by_the_scheduler() -> None:
    async with stage.stage("1x2x40GiB", settings=SETTINGS) as world:
        await annotate(world, "memory-cap=driver")
        await create(world, asking("a", 3000))
        await settle(30)
        await create(world, asking("b", 3000))
        await settle(30)
        assert phases(world) == {"a": "Running", "b": "Running"}
        assert len(writes(world, "binder", "pods", "binding")) == 1
        assert limits(world, "b") == [(0, 3000)]


async def test_no_write_comes_on_top() -> None:
    counts = []
    for settings in (WorldSettings(seed=1), SETTINGS):
        async with stage.stage("1x2x40GiB", settings=settings) as world:
            await annotate(world, "memory-cap,memory-cap=driver")
            await create(world, asking("a", 3000))
            await settle(30)
            assert phases(world) == {"a": "Running"}
            counts.append(len(world.server.write_log))
    assert counts[0] == counts[1]


async def test_a_limit_of_the_pods_own_is_overridden() -> None:
    own = [{"name": name, "value": "39000"} for name in (names.ENV_MEMORY_LIMIT, names.ENV_MEMORY_REQUEST)]
    async with stage.stage("1x2x40GiB", settings=SETTINGS) as world:
        await annotate(world, "memory-cap=driver")
        share = stage.share("b")
        share["spec"]["containers"][0]["env"] = own
        await create(world, asking("a", 3000, own), share)
        await settle(30)
        assert phases(world) == {"a": "Running", "b": "Running"}
        assert limits(world, "a") == [(0, 3000)]
        # KAI's fraction wishes no cap, and may take no memory from its neighbours by a soft limit.
        assert limits(world, "b") == [None]


@pytest.mark.parametrize("enforces", ["", "memory-cap=driver"])
async def test_a_pod_that_reads_no_cap_is_told_that_none_holds(enforces: str) -> None:
    """Where caps by the driver are off, the node's word is about other pods."""
    async with stage.stage("1x2x40GiB") as world:
        await annotate(world, enforces)
        await create(world, asking("a", 3000))
        await settle(30)
        assert limits(world, "a") == [None]
        message = "Node node-0 does not enforce a memory cap of 3000 MiB"
        [(_, _, said)] = told(world, "a")
        assert said.startswith(message)
        assert len(writes(world, "scheduler", "pods", "status")) == 1


async def test_who_leads_next_tells_that_the_node_says_it_no_more() -> None:
    async with stage.stage("1x2x40GiB", settings=SETTINGS) as world:
        await annotate(world, "memory-cap=driver")
        await create(world, asking("a", 3000))
        await settle(30)
        await annotate(world, "")
        await world.restart(world.scheduler)
        await settle(30)
        [(_, _, said)] = told(world, "a")
        assert said.startswith("Node node-0 does not enforce a memory cap by the driver of 3000 MiB")
