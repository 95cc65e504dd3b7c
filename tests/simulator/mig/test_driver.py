"""The driver as an agent asks it: late, failing, and going on when nobody waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from nodeagent.core.mig_partitioning import NotDone
from simulator.mig.hardware import Driver, End, SlicedMachine, SlicedNode, spot

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
