"""Simulated nodes whose GPUs are partitioned on demand: hardware, driver, kubelet and agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from nodeagent.core.mig_partitioning import NotDone
from nodeagent.kubeletapi.client import Unanswered
from simulator.mig.hardware import Driver, End, SlicedMachine, SlicedNode, spot
from tests.simulator.mig.stage import NODE, stage

# Nodes whose GPUs are cut on demand, with the real scheduler, agent and steps.


async def test_a_pod_that_comes_just_then_keeps_its_slice_and_the_attempt_is_refused() -> None:
    async with stage("1g.10gb@0", "1g.10gb@1", "1g.10gb@2", is_idle=True) as on:
        await anyio.sleep(10)
        await on.pod("large", "7g.80gb")
        assert await on.until(lambda: bool(on.node.agent and on.node.agent.partitioner.withdrawn))
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


# The driver as an agent asks it: late, failing, and going on when nobody waits.

AT = spot("1g.10gb@0")


@pytest.fixture
async def tasks() -> AsyncIterator[TaskGroup]:
    async with anyio.create_task_group() as made:
        yield made
        made.cancel_scope.cancel()


def start(tasks: TaskGroup, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    tasks.start_soon(run)


def driver(tasks: TaskGroup, *slices: str, is_on: bool = True) -> tuple[Driver, str]:
    machine = SlicedMachine(SlicedNode(node="node-0", cards=(slices,)), 1, set)
    made = Driver(machine, lambda run: start(tasks, run), lambda: is_on)
    return made, next(iter(machine.cards))


@pytest.mark.parametrize(
    ("end", "is_there", "fails"),
    [("done", True, False), ("refused", False, True), ("half", False, True), ("done-and-failed", True, True)],
)
async def test_a_change_ends_as_the_fault_says(tasks: TaskGroup, end: End, is_there: bool, fails: bool) -> None:
    made, card = driver(tasks)
    made.faults.end = lambda: end
    try:
        await made.make(card, AT)
        failed = False
    except NotDone:
        failed = True
    assert (bool(made.machine.devices()), failed) == (is_there, fails)


async def test_a_change_that_is_given_up_comes_about_later_and_all_wait_for_that(tasks: TaskGroup) -> None:
    made, card = driver(tasks)
    made.faults.slow_s = 100.0
    with pytest.raises(NotDone, match="did not answer within 60 s"):
        await made.make(card, AT)
    assert made.machine.devices() == ()
    await made.read()
    assert len(made.machine.devices()) == 1


async def test_a_machine_without_power_changes_nothing(tasks: TaskGroup) -> None:
    made, card = driver(tasks, is_on=False)
    await made.make(card, AT)
    assert made.machine.devices() == ()


async def test_who_listens_hears_of_both_moments_of_a_change(tasks: TaskGroup) -> None:
    made, card = driver(tasks)
    heard: list[tuple[str, int]] = []
    made.listeners.append(lambda moment: heard.append((moment, len(made.machine.devices()))))
    await made.make(card, AT)
    assert heard == [("before", 0), ("after", 1)]


# What kubelet shows of slices, and when.


async def test_a_pod_is_shown_less_than_two_seconds_after_it_was_given_its_slice() -> None:
    async with stage("1g.10gb@0") as on:
        await anyio.sleep(5)
        manager = on.node.kubelet.intake.manager
        await on.pod("p", "1g.10gb", node=NODE)
        assert await on.until(lambda: bool(manager.pods))
        await anyio.sleep(1.9)
        ((given,),) = [each.devices for each in await on.node.side.list()]
        assert given.ids == tuple(each.uuid for each in on.node.machine.devices())


async def test_a_kubelet_that_starts_shows_no_pod_and_offers_nothing_for_a_while() -> None:
    async with stage("1g.10gb@0", hears_s=0.5) as on:
        await anyio.sleep(5)
        await on.pod("p", "1g.10gb", node=NODE)
        await anyio.sleep(5)
        before = on.node.side.life()
        on.node.side.restart(4.0)
        assert on.node.side.life() != before
        assert (await on.node.side.list(), await on.node.side.allocatable()) == ((), ())
        await anyio.sleep(4.1)
        assert len(await on.node.side.list()) == len(await on.node.side.allocatable()) == 1


async def test_without_power_it_does_not_answer() -> None:
    async with stage("1g.10gb@0") as on:
        on.node.kubelet.die()
        with pytest.raises(Unanswered):
            await on.node.side.list()
        assert on.node.side.life() is None
