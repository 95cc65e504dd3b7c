"""Nodes whose GPUs are cut on demand, with the real scheduler, agent and steps."""

from __future__ import annotations

import anyio

from kube.client.resources import NODES
from tests.simulator.mig.stage import NODE, stage
from wire import names


async def test_a_pod_gets_the_slice_that_it_waits_for_and_one_in_use_stays() -> None:
    async with stage("1g.10gb@0") as on:
        await on.pod("small", "1g.10gb")
        await anyio.sleep(10)
        await on.pod("middle", "2g.20gb")
        await anyio.sleep(30)
        assert [await on.phase(name) for name in ("small", "middle")] == ["Running", "Running"]
        assert on.spots == ["1g.10gb@0", "2g.20gb@2"]
        assert on.world.checker.findings.found == {}


async def test_a_pod_that_comes_just_then_keeps_its_slice_and_the_attempt_is_refused() -> None:
    async with stage("1g.10gb@0", "1g.10gb@1", "1g.10gb@2", is_idle=True) as on:
        await anyio.sleep(10)
        await on.pod("large", "7g.80gb")
        assert await on.until(lambda: bool(on.node.agent and on.node.agent.carver.withdrawn))
        # Read by kubelet in a moment: until then it chooses slices that are to go, and is refused.
        await on.pod("late", "1g.10gb", node=NODE)
        await anyio.sleep(20)
        assert (await on.phase("late") == "Running") == ("1g.10gb@0" in on.spots)
        assert on.world.checker.findings.found == {}


async def test_an_agent_that_is_killed_between_two_steps_begins_again_from_what_is_there() -> None:
    async with stage("1g.10gb@0", "1g.10gb@1") as on:
        await anyio.sleep(10)
        await on.pod("large", "7g.80gb")
        assert await on.until(lambda: len(on.spots) == 1)
        on.node.hold_down()
        await anyio.sleep(5)
        assert len(on.spots) == 1
        on.node.let_up()
        await anyio.sleep(60)
        assert (on.spots, await on.phase("large")) == (["7g.80gb@0"], "Running")
        assert on.world.checker.findings.found == {}


async def test_a_node_tells_what_is_left_of_a_profile() -> None:
    async with stage("1g.10gb@0", "1g.10gb@1") as on:
        await anyio.sleep(10)
        await on.pod("large", "7g.80gb")
        await anyio.sleep(60)
        told = (await on.world.api.get(NODES, NODE)).status
        small, large = names.MIG_RESOURCE_PREFIX + "1g.10gb", names.MIG_RESOURCE_PREFIX + "7g.80gb"
        for amounts in (told.capacity or {}, told.allocatable or {}):
            assert (amounts[small], amounts[large]) == ("0", "1")


async def test_an_agent_dies_with_its_machine_and_pods_find_their_slices() -> None:
    async with stage("1g.10gb@0") as on:
        await on.pod("small", "1g.10gb")
        await anyio.sleep(10)
        on.node.kubelet.die()
        await anyio.sleep(5)
        offered = [on.node.is_offered]
        on.node.kubelet.boot()
        await anyio.sleep(20)
        offered.append(on.node.is_offered)
        assert offered == [False, True]
        assert (on.spots, await on.phase("small")) == (["1g.10gb@0"], "Running")
