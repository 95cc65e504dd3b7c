"""Gangs below their minimum: evicted with budgets held, and stamped on their PodGroup as in KAI."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kube.client.resources import POD_GROUPS, PODS
from scheduler.app import Scheduler
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import bound, create, create_gang, is_call, pod, settle, strike_all, writes
from tests.simulator.apiserver.calls import send
from tests.values import there
from wire import names
from wire.rfc3339 import rfc3339

# The rest of a gang below its minimum goes by the evictor: budgets hold, and a gang that was refused is judged again.

BUDGETS = f"/apis/policy/v1/namespaces/{stage.TEAM}/poddisruptionbudgets"
#: Twice the grace time after the first refusal, and a look.
AGAIN_S = 130.0
PATIENT = WorldSettings(seed=1, gang_grace_s=1000.0)


async def budget(world: World, allowed: int) -> None:
    """A budget of the gang's that allows no disruption, or any number; its controller counts it."""
    client = world.server.transport()
    spec = {"selector": {"matchLabels": {"budget": "b"}}, "minAvailable": 0 if allowed else 4}
    await send(client, "POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    await send(client, "PATCH", f"{BUDGETS}/b", {"spec": spec})


async def broken(world: World, *protected: str) -> None:
    """A gang of four that has lost a member, and nobody makes it again."""
    members = [pod(f"m{i}", gpus=1) for i in range(4)]
    for member in members:
        member["metadata"]["labels"] = {"budget": "b"} if member["metadata"]["name"] in protected else {}
    await create_gang(world, "g", 4, *members)
    await settle()
    assert len(bound(world)) == 4
    await world.api.delete(PODS, "m3", namespace=stage.TEAM, grace_s=0)


def asked(world: World) -> list[str]:
    return [entry.name for entry in world.server.audit if entry.subresource == "eviction"]


async def test_a_member_under_a_budget_stays_and_is_asked_again_less_and_less_often() -> None:
    async with stage.stage("1x4x80GiB", settings=PATIENT) as world:
        await broken(world, "m1")
        await budget(world, 0)
        await settle(100)
        assert bound(world) == {"m1"}
        assert sorted(asked(world)) == ["m0", "m1", "m2"]
        await settle(AGAIN_S)
        assert sorted(asked(world)) == ["m0", "m1", "m1", "m2"]
        await budget(world, 1)
        await settle(2 * AGAIN_S)
        assert bound(world) == set()


async def test_a_gang_that_was_refused_and_is_whole_again_keeps_its_members() -> None:
    async with stage.stage("1x4x80GiB", settings=PATIENT) as world:
        await broken(world, "m0", "m1", "m2")
        await budget(world, 0)
        await settle(75)
        before = asked(world)
        assert before
        late = pod("m3", gpus=1, annotations={names.POD_GROUP_NAME: "g"})
        await stage.create(world, late)
        await budget(world, 4)
        await settle(1000)
        assert bound(world) == {"m0", "m1", "m2", "m3"}
        assert asked(world) == before


async def test_members_that_were_refused_and_are_spared_are_remembered_for_a_while_only() -> None:
    async with stage.stage("1x4x80GiB", settings=PATIENT) as world:
        (scheduler,) = world.running.values()
        assert isinstance(scheduler, Scheduler)
        await broken(world, "m0", "m1", "m2")
        await budget(world, 0)
        await settle(75)
        assert scheduler._evictor.refused
        await stage.create(world, pod("m3", gpus=1, annotations={names.POD_GROUP_NAME: "g"}))
        await settle(1500)
        assert not scheduler._evictor.refused


@pytest.mark.parametrize("is_carried_out", [False, True], ids=["not", "carried out"])
async def test_an_answer_that_is_lost_leads_to_one_eviction_of_each(is_carried_out: bool) -> None:
    async with stage.stage("1x4x80GiB", settings=PATIENT) as world:
        is_eviction, left = is_call("scheduler", "create", "pods", "eviction"), [1]

        def strike(call: Call) -> Fault | None:
            if is_eviction(call) and left:
                left.clear()
                return Fault(refuse_with=500, carried_out=is_carried_out)
            return None

        world.server.faults.on_request.append(strike)
        await broken(world)
        await settle(100 + AGAIN_S)
        assert bound(world) == set()
        carried_out = [e.name for e in world.server.audit if e.subresource == "eviction" and e.code < 300]
        assert sorted(carried_out) == ["m0", "m1", "m2"]


async def lose(world: World, *lost: str) -> None:
    for name in lost:
        await world.api.delete(PODS, name, namespace=stage.TEAM, grace_s=0)


async def stamp(world: World, group: str = "g") -> str | None:
    """What stands on a PodGroup."""
    found = await world.api.get(POD_GROUPS, group, namespace=stage.TEAM)
    return (found.metadata.annotations or {}).get(names.STALE_SINCE)


async def write_stamp(world: World, text: str | None, group: str = "g") -> None:
    """Write it as a user does."""
    patch = {"metadata": {"annotations": {names.STALE_SINCE: text}}}
    await stage.api_of(world, "someone").patch(POD_GROUPS, group, patch, namespace=stage.TEAM)


def at(world: World, ago_s: float) -> str:
    return rfc3339(world.clocks["binder"].true.now_ns() - round(ago_s * 1e9))


async def pair(world: World, name: str = "g") -> None:
    """A gang of two that runs."""
    await create_gang(world, name, 2, *(pod(f"{name}{i}", gpus=1) for i in range(2)))
    await settle(7)


async def join(world: World, name: str, group: str = "g") -> None:
    late = pod(name, gpus=1)
    late["metadata"]["annotations"][names.POD_GROUP_NAME] = group
    await create(world, late)


def stamps_of(world: World) -> int:
    """How often the scheduler wrote on PodGroups."""
    return len(writes(world, "scheduler", "podgroups"))


async def test_the_time_below_the_minimum_is_written_once_and_removed_when_the_gang_is_whole_again() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await pair(world)
        before = stamps_of(world)
        assert await stamp(world) is None
        lost_at = world.clocks["binder"].true.now_ns()
        await lose(world, "g1")
        await settle(40)
        written = there(await stamp(world))
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", written)
        assert rfc3339(lost_at) <= written <= rfc3339(lost_at + 10 * 10**9)
        assert stamps_of(world) == before + 1
        await join(world, "g2")
        await settle(60)
        assert await stamp(world) is None
        assert stamps_of(world) == before + 2
        assert bound(world) == {"g0", "g2"}


@pytest.mark.parametrize("ahead_s", [-3600, 0, 3600])
async def test_a_restart_does_not_change_when_a_gang_is_released_wherever_the_new_clock_is(ahead_s: int) -> None:
    async with stage.stage("1x4x80GiB") as world:
        await pair(world)
        await lose(world, "g1")
        await settle(30)
        world.clocks["scheduler"].ahead_ns += ahead_s * 10**9
        await world.restart(world.scheduler, pause_s=15)
        await settle(14)
        assert bound(world) == {"g0"}
        await settle(16)
        assert bound(world) == set()
        await settle(10)
        assert await stamp(world) is None


@pytest.mark.parametrize(
    ("forged", "is_released"),
    [
        pytest.param(lambda world: at(world, -3600), False, id="future"),
        pytest.param(lambda _: "yesterday", False, id="unreadable"),
        pytest.param(lambda _: "2026-01-01", False, id="no time of day"),
        pytest.param(lambda _: "9" * 100_000, False, id="long"),
        pytest.param(lambda world: at(world, 3600), True, id="old, which harms its own gang only"),
    ],
)
async def test_a_time_that_somebody_forged_before_a_restart(forged: Callable[[World], str], is_released: bool) -> None:
    async with stage.stage("1x4x80GiB") as world:
        await pair(world)
        world.scheduler.crash()
        await lose(world, "g1")
        await write_stamp(world, forged(world))
        await world.restart(world.scheduler, pause_s=70)
        began_at = world.clocks["binder"].true.now_ns()
        await settle(45)
        assert bound(world) == (set() if is_released else {"g0"})
        if not is_released:
            written = there(await stamp(world))
            assert rfc3339(began_at) <= written <= rfc3339(began_at + 10 * 10**9)
        await settle(30)
        assert bound(world) == set()


async def test_a_time_that_somebody_writes_beside_a_running_scheduler_changes_nothing_and_is_put_right() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await pair(world)
        await lose(world, "g1")
        await settle(15)
        right = await stamp(world)
        await write_stamp(world, at(world, 3600))
        await settle(15)
        assert bound(world) == {"g0"}
        now = await stamp(world)
        assert right is not None
        assert now is not None
        assert abs(int(now[-3:-1]) - int(right[-3:-1])) % 58 <= 1
        await settle(40)
        assert bound(world) == set()


async def test_a_gang_with_a_time_that_is_written_again_and_again_costs_a_write_in_some_seconds() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await pair(world)
        before = stamps_of(world)
        for _ in range(120):
            await write_stamp(world, at(world, 3600))
            await settle(1)
        assert 10 <= stamps_of(world) - before <= 120 / 5
        await settle(20)
        assert await stamp(world) is None


async def test_a_stamp_that_is_refused_is_written_ever_less_often_and_holds_up_nobody() -> None:
    async with stage.stage("1x8x80GiB") as world:
        await pair(world, "g")
        await pair(world, "h")

        def refused(call: Call) -> Fault | None:
            is_meant = is_call("scheduler", "patch", "podgroups")(call) and call.name == "g"
            return Fault(refuse_with=500, answer_delay_s=3.0) if is_meant else None

        await world.api.patch(POD_GROUPS, "g", {"spec": {"stalenessGracePeriod": "5m"}}, namespace=stage.TEAM)
        await settle(1)
        tried = len(world.server.audit)
        world.server.faults.on_request.append(refused)
        await lose(world, "g1", "h1")
        await settle(20)
        assert await stamp(world, "h") is not None
        await settle(220)
        of_group = [e for e in world.server.audit[tried:] if (e.user, e.resource, e.verb) == _PATCHES and e.name == "g"]
        asked = [e for e in of_group if not e.subresource]
        assert all(entry.code >= 500 for entry in asked)
        assert bound(world) == {"g0"}
        await settle(80)
        assert bound(world) == set()


_PATCHES = ("scheduler", "podgroups", "patch")


async def test_a_gang_that_was_whole_while_its_stamp_could_not_be_removed_has_all_of_its_grace_time() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await pair(world)
        await lose(world, "g1")
        await settle(30)
        assert await stamp(world) is not None
        strike_all(world, is_call("scheduler", "patch", "podgroups"), Fault(refuse_with=503))
        await join(world, "g2")
        await settle(10)
        assert bound(world) == {"g0", "g2"}
        await lose(world, "g2")
        await settle(55)
        assert bound(world) == {"g0"}
        await settle(20)
        assert bound(world) == set()


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"minSubGroup": 1, "subGroups": [{"name": "a", "minMember": 2}]}, id="two minimums"),
        pytest.param({"subGroups": [{"name": "a", "parent": "a", "minMember": 9}]}, id="contradicts itself"),
    ],
)
async def test_the_stamp_of_a_group_whose_minimums_nobody_knows_is_left_alone(asked: dict[str, Any]) -> None:
    async with stage.stage("1x4x80GiB") as world:
        await pair(world)
        await world.api.patch(POD_GROUPS, "g", {"spec": asked}, namespace=stage.TEAM)
        written = at(world, 3600)
        await write_stamp(world, written)
        await lose(world, "g1")
        await world.restart(world.scheduler)
        await settle(100)
        assert await stamp(world) == written
        assert bound(world) == {"g0"}


async def kept(world: World) -> str | None:
    """The minimums that a gang had before they rose, as its PodGroup says."""
    found = await world.api.get(POD_GROUPS, "g", namespace=stage.TEAM)
    return (found.metadata.annotations or {}).get(names.KEPT_MINIMUM)


async def ask_for(world: World, minimum: int) -> None:
    await stage.api_of(world, "someone").patch(POD_GROUPS, "g", {"spec": {"minMember": minimum}}, namespace=stage.TEAM)


async def test_a_gang_whose_minimum_rises_runs_on_also_after_a_restart() -> None:
    async with stage.stage("1x2x80GiB") as world:
        await pair(world)
        await ask_for(world, 4)
        await settle(2)
        assert await kept(world) == '{"minMember":2}'
        await settle(100)
        await world.restart(world.scheduler, pause_s=5)
        await settle(100)
        assert bound(world) == {"g0", "g1"}
        assert await stamp(world) is None
        await lose(world, "g1")
        await settle(75)
        assert bound(world) == set()


async def test_what_a_gang_had_before_its_minimum_rose_is_forgotten_when_it_has_what_it_needs() -> None:
    async with stage.stage("1x4x80GiB") as world:
        await pair(world)
        await ask_for(world, 3)
        await settle(2)
        await join(world, "g2")
        await settle(20)
        assert bound(world) == {"g0", "g1", "g2"}
        assert await kept(world) is None
        await lose(world, "g2")
        await settle(75)
        assert bound(world) == set()
