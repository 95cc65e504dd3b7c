"""What would help is told after a while of waiting, as long as it is true, and costs few writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import anyio
import pytest

from kube.client.resources import PODS
from scheduler.app import Scheduler
from scheduler.conditions.suggestions import Suggesting
from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Code, Verdict
from scheduler.settings import SchedulerSettings
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import (
    all_writes,
    cordon,
    create,
    create_gang,
    find,
    phases,
    pod,
    settle,
    waits_because,
    writes,
)

_TOLD = re.compile(r"(?P<reason>.*?) (This change|Each of these changes, alone,) lets it start \(tried, and renewed ")
_LACKS_4 = (
    "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs. "
    "The best node lacks 4 GPU(s)."
)
_HINT = " This change lets it start (tried, and renewed within 10 minutes): request 4 GPUs per pod."


def suggesting() -> WorldSettings:
    return WorldSettings(seed=1, scheduler=SchedulerSettings(suggestions=True))


@dataclass
class Reads:
    """A wall clock that notes when it is read, as each search does. ``time``: of the event loop."""

    time: Callable[[], float]
    read_at_s: list[float] = field(default_factory=list)

    def now_ns(self) -> int:
        self.read_at_s.append(self.time())
        return round(self.time() * 10**9)


def told(world: World, name: str) -> str:
    """What is said to help."""
    return waits_because(world, name).partition("minutes): ")[2]


async def test_after_half_a_minute_a_pod_is_told_what_would_let_it_start() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("big", gpus=8))
        await settle(29)
        assert waits_because(world, "big") == _LACKS_4
        await settle(5)
        assert waits_because(world, "big") == _LACKS_4 + _HINT


async def test_it_can_be_switched_off() -> None:
    async with stage.stage("2x4x80GiB") as world:
        await create(world, pod("big", gpus=8))
        await settle(60)
        assert waits_because(world, "big") == _LACKS_4


async def test_as_long_as_nothing_changes_nothing_more_is_written() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("big", gpus=8))
        await settle(60)
        assert len(writes(world, "scheduler", "pods", "status")) == 2
        before = len(all_writes(world, "scheduler"))
        await settle(3600)
        assert len(all_writes(world, "scheduler")) == before


async def test_the_sentence_is_no_further_event() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("big", gpus=8))
        await settle(20)
        before = len(writes(world, "scheduler", "events"))
        await settle(60)
        assert "lets it start" in waits_because(world, "big")
        assert len(writes(world, "scheduler", "events")) == before


async def test_what_does_not_help_any_more_is_gone_within_the_time_that_it_states() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("big", gpus=8))
        await settle(60)
        assert told(world, "big") == "request 4 GPUs per pod."
        await create(world, *(pod(f"other-{at}", gpus=2) for at in range(2)))
        await settle(5)
        await create(world, *(pod(f"more-{at}", gpus=1) for at in range(2)))
        await settle(600)
        assert told(world, "big") == "request 2 GPUs per pod."


async def test_it_goes_with_the_reason_that_it_was_tried_for() -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("small", gpus=2))
        await settle(5)
        await create(world, pod("big", gpus=4))
        await settle(40)
        assert told(world, "big") == "request 2 GPUs per pod."
        await world.api.delete(PODS, "small", namespace=stage.TEAM)
        await settle(10)
        assert phases(world) == {"big": "Running"}


async def test_a_gang_is_told_with_how_many_pods_it_would_start() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create_gang(world, "train", 3, *(pod(f"train-{at}", gpus=4) for at in range(3)))
        await settle(60)
        for at in range(3):
            assert told(world, f"train-{at}") == ("request 2 GPUs per pod; start with 2 pods (minMember: 2)."), (
                waits_because(world, f"train-{at}")
            )


async def test_who_waits_for_pods_with_a_deadline_is_told_when_it_starts_at_the_latest_and_not_for_whom() -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("secret", gpus=4, activeDeadlineSeconds=3600))
        await settle(5)
        await create(world, pod("next", gpus=4))
        await settle(60)
        said = told(world, "next")
        assert re.fullmatch(
            r"wait until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ at the latest, when 1 pod ended, if nothing else changes\.",
            said,
        ), waits_because(world, "next")
        assert "secret" not in said


async def test_a_time_that_is_over_is_not_told_any_more() -> None:
    """The pod is bound and past its deadline, and its kubelet does not end it."""
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("late", gpus=4, activeDeadlineSeconds=100))
        await settle(5)
        await create(world, pod("next", gpus=4))
        await settle(60)
        assert told(world, "next").startswith("wait until")
        await settle(120)
        assert not told(world, "next").startswith("wait until")


async def test_a_gang_that_lacks_pods_meanwhile_is_not_looked_at_and_keeps_nobody_from_being_told() -> None:
    async with stage.stage("2x4x80GiB", settings=suggesting()) as world:
        await create_gang(world, "train", 2, pod("train-0", gpus=8), pod("train-1", gpus=8))
        await settle(20)
        await world.api.delete(PODS, "train-0", namespace=stage.TEAM)
        await create(world, pod("big", gpus=8))
        await settle(60)
        assert "Waiting for 2 pods" in waits_because(world, "train-1")
        assert told(world, "big") == "request 4 GPUs per pod."


async def test_where_nothing_helps_nothing_is_said() -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await cordon(world, "node-0")
        await create(world, pod("big", gpus=8))
        await settle(600)
        assert _TOLD.match(waits_because(world, "big")) is None
        assert len(writes(world, "scheduler", "pods", "status")) == 1


async def test_a_group_for_which_nothing_helps_is_tried_every_five_minutes() -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await cordon(world, "node-0")
        await create(world, pod("big", gpus=8))
        await settle(5)
        (scheduler,) = world.running.values()
        assert isinstance(scheduler, Scheduler)
        clock = Reads(anyio.current_time)
        told: list[str] = []
        suggesting_alone = Suggesting(scheduler.cache, clock=clock, suggest=lambda _, sentence: told.append(sentence))
        waits = Verdict(code=Code.NO_NODE_FITS)
        suggesting_alone.decided(
            [Explain(pods=(find(world, "big")["metadata"]["uid"],), pod_group=None, verdict=waits)]
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(suggesting_alone.run)
            await settle(1000)
            tasks.cancel_scope.cancel()
        tried_at = sorted({round(at, -1) for at in clock.read_at_s})
        assert (tried_at, told) == ([40.0, 340.0, 640.0, 940.0], [])


@pytest.mark.parametrize("count", [200])
async def test_at_most_five_pods_alone_are_told_in_a_second(count: int) -> None:
    async with stage.stage("1x4x80GiB", settings=suggesting()) as world:
        await create(world, *(pod(f"big-{at}", gpus=8) for at in range(count)))
        await settle(28)
        told_at = [len(writes(world, "scheduler", "pods", "status"))]
        for _ in range(20):
            await settle(1)
            told_at.append(len(writes(world, "scheduler", "pods", "status")))
        assert max(later - sooner for sooner, later in pairwise(told_at)) <= 5
        assert told_at[-1] > told_at[0]


async def test_what_was_said_helps_those_who_follow_it() -> None:
    """Everybody does what the condition says, and runs."""
    async with stage.stage("3x4x80GiB", settings=suggesting()) as world:
        await create(world, pod("a", gpus=3), pod("b", gpus=2), pod("c", gpus=1))
        await settle(5)
        await create(world, pod("big", gpus=6), pod("wide", gpus=5))
        await settle(90)
        for name in ("big", "wide"):
            gpus = int(re.findall(r"request (\d) GPU", told(world, name))[0])
            await world.api.delete(PODS, name, namespace=stage.TEAM)
            await settle(5)
            await create(world, pod(f"{name}-smaller", gpus=gpus))
            await settle(20)
            assert phases(world)[f"{name}-smaller"] == "Running"
            await world.api.delete(PODS, f"{name}-smaller", namespace=stage.TEAM)
            await settle(5)
