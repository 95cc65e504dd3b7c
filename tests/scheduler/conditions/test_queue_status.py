"""The status of Queues: true, a few seconds late at most, and written only when it would change."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from kube.client.resources import PODS, QUEUES
from scheduler.settings import SchedulerSettings
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.conditions.queues import create_queue, gpus, says, status, use
from tests.scheduler.stage import api_of, bound, is_call, settle, strike_all, writes
from wire import names


def count(world: World) -> int:
    """How often the scheduler wrote the status of a Queue."""
    return len(writes(world, "scheduler", "queues", "status"))


async def test_a_queue_shows_what_it_holds_what_it_asks_and_its_children() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_queue(world, "top")
        await create_queue(world, "b", "top")
        await create_queue(world, "a", "top", resources=gpus(limit=2))
        await use(world, "a", "a0", "a1", "a2")
        await use(world, "b", "b0")
        await settle(20)
        top, a = await status(world, "top"), await status(world, "a")
        assert a.allocated == {"cpu": "0", "memory": "0", "nvidia.com/gpu": "2"}
        assert (a.requested or {})["nvidia.com/gpu"] == "3"
        assert top.child_queues == ["a", "b"]
        assert (top.allocated or {})["nvidia.com/gpu"] == "3"
        assert (top.requested or {})["nvidia.com/gpu"] == "4"


async def test_pods_that_cannot_be_preempted_are_shown_beside_the_others() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_queue(world, "a", resources=gpus(quota=4))
        await use(world, "a", "a0")
        await use(world, "a", "a1", gpu_count=2, is_fixed=True)
        await settle(20)
        a = await status(world, "a")
        assert [(each or {})["nvidia.com/gpu"] for each in (a.allocated, a.allocated_non_preemptible)] == ["3", "2"]


async def test_parts_of_gpus_are_shown_exactly() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create_queue(world, "default-queue")
        await stage.create(world, stage.share("half", "0.5"), stage.share("third", "0.333333333"))
        await settle(20)
        assert ((await status(world, "default-queue")).allocated or {})["nvidia.com/gpu"] == "833333333n"


async def test_a_queue_that_changes_all_the_time_is_written_every_five_seconds() -> None:
    async with stage.stage("4x8x80GiB") as world:
        await create_queue(world, "a")
        await settle(10)
        before = count(world)
        for number in range(30):
            await use(world, "a", f"a{number}")
            await anyio.sleep(1)
        assert count(world) - before <= 7
        await settle(10)
        assert ((await status(world, "a")).allocated or {})["nvidia.com/gpu"] == "30"


@pytest.mark.parametrize(
    ("queues", "reason", "is_orphan"),
    [
        pytest.param([("a", "gone", 0)], "QueueParentDoesNotExist", True, id="no parent"),
        pytest.param([("a", "top", 0), ("top", "gone", 0)], "QueueParentDoesNotExist", False, id="no grandparent"),
        pytest.param([("a", "", -2)], "QueueClosed", False, id="closed"),
        pytest.param([("a", "b", 0), ("b", "a", 0)], "QueueCycle", False, id="cycle"),
    ],
)
async def test_a_queue_that_cannot_be_used_says_why_and_what_it_asks(
    queues: list[tuple[str, str, int]], reason: str, is_orphan: bool
) -> None:
    async with stage.stage("1x4x80GiB") as world:
        for name, parent, quota in queues:
            await create_queue(world, name, parent, resources=gpus(quota=quota))
        await use(world, "a", "a0")
        await settle(20)
        assert await says(world, "a") == {
            "Orphan": ("True", "ParentDoesNotExist")
            if is_orphan
            else ("False", "ParentExists" if queues[0][1] else "NoParent"),
            "OverQuota": ("False", "WithinQuota"),
            names.CONDITION_QUEUE_CLOSED: ("True", reason),
        }
        assert ((await status(world, "a")).requested or {})["nvidia.com/gpu"] == "1"


async def test_a_queue_says_when_it_is_above_its_quota_and_since_when() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_queue(world, "a", resources=gpus(quota=1))
        await use(world, "a", "a0")
        await settle(20)
        (within,) = [each for each in (await status(world, "a")).conditions or () if each.type == "OverQuota"]
        await use(world, "a", "a1")
        await settle(20)
        (above,) = [each for each in (await status(world, "a")).conditions or () if each.type == "OverQuota"]
        assert (within.status, above.status, above.message) == ("False", "True", "allocated is above the quota: gpu")
        await use(world, "a", "a2")
        await settle(20)
        (still,) = [each for each in (await status(world, "a")).conditions or () if each.type == "OverQuota"]
        assert within.last_transition_time != above.last_transition_time == still.last_transition_time


async def test_what_others_wrote_is_put_right_and_their_conditions_stay() -> None:
    theirs = {"type": "Audited", "status": "True", "reason": "ByHand"}
    forged = {
        "allocated": {"cpu": "9", "pods": "7"},
        "childQueues": ["x"],
        "conditions": [theirs, {"type": "OverQuota", "status": "True"}],
    }
    async with stage.stage("1x4x80GiB") as world:
        await create_queue(world, "a")
        await settle(10)
        await api_of(world, "someone").patch(QUEUES, "a", {"status": forged}, subresource="status")
        before = count(world)
        await settle(20)
        a = await status(world, "a")
        assert (a.allocated, a.child_queues) == ({"cpu": "0", "memory": "0", "nvidia.com/gpu": "0"}, None)
        assert {each.type for each in a.conditions or ()} == {
            "Audited",
            "Orphan",
            "OverQuota",
            names.CONDITION_QUEUE_CLOSED,
        }
        assert (await says(world, "a"))["OverQuota"] == ("False", "WithinQuota")
        assert count(world) == before + 1


async def test_pods_are_bound_while_the_writes_hang() -> None:
    async with stage.stage("1x4x80GiB") as world:
        strike_all(world, is_call("scheduler", "patch", "queues", "status"), Fault(answer_delay_s=20.0))
        await create_queue(world, "a")
        await settle(5)
        await use(world, "a", "a0")
        await settle(2)
        assert bound(world) == {"a0"}


async def test_a_successor_writes_only_what_is_not_true_any_more() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_queue(world, "a")
        await create_queue(world, "b")
        await use(world, "a", "a0")
        await settle(20)
        world.scheduler.crash()
        before = count(world)
        await world.api.delete(PODS, "a0", namespace=stage.TEAM, grace_s=0)
        await world.restart(world.scheduler)
        await settle(20)
        assert ((await status(world, "a")).allocated or {})["nvidia.com/gpu"] == "0"
        assert count(world) == before + 1


async def test_a_queue_that_is_made_again_is_told_how_it_stands() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await create_queue(world, "a")
        await use(world, "a", "a0")
        await settle(10)
        await world.api.delete(QUEUES, "a")
        await create_queue(world, "a")
        await settle(3)
        assert ((await status(world, "a")).allocated or {})["nvidia.com/gpu"] == "1"


async def test_nothing_is_written_where_that_is_switched_off_or_nobody_leads() -> None:
    off = msgspec.structs.replace(WorldSettings(seed=1), scheduler=SchedulerSettings(object_status=False))
    async with stage.stage("1x4x80GiB", settings=off) as world:
        await create_queue(world, "a")
        await use(world, "a", "a0")
        await settle(60)
        assert bound(world) == {"a0"}
        assert count(world) == 0


@pytest.mark.thorough
async def test_a_thousand_queues_are_written_at_a_bounded_rate_and_pods_do_not_wait_for_them() -> None:
    async with stage.stage("1x4x80GiB") as world:
        for number in range(1000):
            await create_queue(world, f"q{number}")
        await use(world, "q7", "a0")
        await settle(2)
        assert bound(world) == {"a0"}
        await settle(60)
        assert 1000 <= count(world) <= 1010
