"""What befalls agents that make MIG slices: each fault does what it says, and is over when it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from kube.client.resources import GPU_NODES, PODS
from nodeagent.core.mig_partitioning import NotDone
from simulator.mig.hardware import Moment, spot
from simulator.policies import AGENT
from tests.simulator.mig.stage import NODE, stage
from tests.simulator.mig.stage import Stage as Sliced
from verification.hostile.faults.devices import (
    GRABBERS,
    DriverFails,
    DriverSlow,
    GpuNodesLate,
    GpuNodesMeddled,
    GpuNodesUnheard,
    KubeletRestarts,
    PartitionerCrashes,
    PartitionerDown,
    SlicesGrabbed,
)
from verification.hostile.faults.ground import Ground, Timed
from verification.hostile.faults.nodes import NodeReplaced
from verification.hostile.versions import Versions

TWO = ("1g.10gb@0", "1g.10gb@1")


@dataclass(frozen=True, slots=True)
class Struck:
    sliced: Sliced
    ground: Ground


@asynccontextmanager
async def struck(fault: Timed, *slices: str, **more: Any) -> AsyncIterator[Struck]:
    """A node that is ready, and a fault that strikes it."""
    async with stage(*slices, **more) as on, anyio.create_task_group() as tasks:
        await anyio.sleep(10)
        ground = Ground(on.world, Versions(), on.nodes.of)
        tasks.start_soon(fault.strike, ground)
        yield Struck(on, ground)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("moment", "left"), [("before", 1), ("after", 1)])
async def test_an_agent_that_is_killed_at_a_change_does_no_other_until_it_is_back(moment: Moment, left: int) -> None:
    fault = PartitionerCrashes(at_s=0, for_s=60, node=NODE, nth=1, moment=moment, pause_s=20)
    async with struck(fault, *TWO) as on:
        await on.sliced.pod("large", "7g.80gb")
        assert await on.sliced.until(lambda: on.sliced.node.agent is None)
        await anyio.sleep(10)
        assert len(on.sliced.spots) == left
        await anyio.sleep(60)
        assert (on.sliced.spots, await on.sliced.phase("large")) == (["7g.80gb@0"], "Running")


async def test_an_agent_may_be_killed_at_once() -> None:
    fault = PartitionerCrashes(at_s=0, for_s=60, node=NODE, nth=0, moment="before", pause_s=5)
    async with struck(fault, *TWO) as on:
        await anyio.sleep(1)
        assert on.sliced.node.agent is None
        await anyio.sleep(10)
        assert on.sliced.node.agent is not None


async def test_what_is_asked_of_an_agent_that_is_down_is_withdrawn_by_the_scheduler() -> None:
    async with struck(PartitionerDown(at_s=0, for_s=100, node=NODE)) as on:
        await on.sliced.pod("large", "7g.80gb")
        asked = [bool((await on.ground.api.get(GPU_NODES, NODE)).spec.mig)]
        for _ in range(60):
            await anyio.sleep(1)
            asked.append(bool((await on.ground.api.get(GPU_NODES, NODE)).spec.mig))
        text = "".join("ny"[each] for each in asked).lstrip("n")
        assert 25 <= len(text.partition("n")[0]) <= 35, text
        assert on.sliced.spots == []


async def test_a_driver_that_fails_leaves_the_slices_and_the_attempt_has_failed() -> None:
    fault = DriverFails(at_s=0, for_s=60, node=NODE, per_mille=1000, end="refused", seed=1)
    async with struck(fault, *TWO) as on:
        await on.sliced.pod("large", "7g.80gb")
        with anyio.fail_after(30):
            while await on.sliced.partitioning() != "failed":  # noqa: ASYNC110 - what it waits for is on the server
                await anyio.sleep(0.5)
        assert on.sliced.spots == list(TWO)
        await anyio.sleep(200)
        assert await on.sliced.phase("large") == "Running"


async def test_a_slow_driver_is_waited_for() -> None:
    async with struck(DriverSlow(at_s=0, for_s=300, node=NODE, slow_s=70.0)) as on:
        await anyio.sleep(0.1)
        card = next(iter(on.sliced.node.machine.cards))
        with pytest.raises(NotDone, match="did not answer"):
            await on.sliced.node.driver.make(card, spot("1g.10gb@0"))
        await anyio.sleep(20)
        assert on.sliced.spots == ["1g.10gb@0"]


async def test_whenever_a_slice_is_about_to_go_a_pod_comes_for_it_and_goes_at_the_end() -> None:
    async with struck(SlicesGrabbed(at_s=0, for_s=40, node=NODE, late_s=0.0, seed=1), *TWO) as on:
        await on.sliced.pod("large", "7g.80gb")
        await anyio.sleep(30)
        made = (await on.ground.api.list(PODS, namespace=GRABBERS)).items
        assert {each.spec.node_name for each in made} == {NODE}
        await anyio.sleep(60)
        assert (await on.ground.api.list(PODS, namespace=GRABBERS)).items == []
        assert on.sliced.world.checker.findings.found == {}


async def test_reports_of_gpu_nodes_come_late() -> None:
    async with struck(GpuNodesLate(at_s=0, for_s=60, there_s=9.0, seed=3), *TWO) as on:
        since_s = anyio.current_time()
        await on.sliced.pod("large", "7g.80gb")
        assert await on.sliced.until(lambda: on.sliced.spots == ["7g.80gb@0"])
        while await on.sliced.partitioning() != "done":  # noqa: ASYNC110 - what it waits for is on the server
            await anyio.sleep(0.5)
        assert anyio.current_time() - since_s > 8.0


async def test_an_agent_that_hears_nothing_of_gpu_nodes_makes_no_slice_until_the_end() -> None:
    async with struck(GpuNodesUnheard(at_s=0, for_s=25, user=AGENT, plural="gpunodes"), *TWO) as on:
        await on.sliced.pod("large", "7g.80gb")
        await anyio.sleep(20)
        assert await on.sliced.phase("large") == "Pending"
        await anyio.sleep(90)
        assert await on.sliced.phase("large") == "Running"


@pytest.mark.parametrize("how", ["withdrawn", "deleted"])
async def test_what_is_asked_is_taken_back_and_asked_again(how: Any) -> None:
    async with struck(GpuNodesMeddled(at_s=0, for_s=40, every_s=1.0, how=how), *TWO) as on:
        await on.sliced.pod("large", "7g.80gb")
        await anyio.sleep(20)
        assert await on.sliced.phase("large") == "Pending"
        await anyio.sleep(200)
        assert await on.sliced.phase("large") == "Running"


async def test_a_kubelet_that_restarts_is_another_one_each_time() -> None:
    async with struck(KubeletRestarts(at_s=0, for_s=20, node=NODE, every_s=5.0, blind_s=2.0), "1g.10gb@0") as on:
        lives = set()
        for _ in range(30):
            lives.add(on.sliced.node.side.life())
            await anyio.sleep(1)
        assert len(lives) >= 4


async def test_a_machine_with_gpus_in_mig_mode_is_not_replaced() -> None:
    async with struck(NodeReplaced(at_s=0, for_s=5, node=NODE, cards_mib=(1000,)), *TWO) as on:
        await anyio.sleep(20)
        assert on.sliced.node.kubelet.refits == 0


async def test_on_a_node_without_such_an_agent_nothing_happens() -> None:
    async with struck(PartitionerDown(at_s=0, for_s=5, node="node-9"), *TWO) as on:
        await anyio.sleep(3)
        assert on.sliced.node.agent is not None
