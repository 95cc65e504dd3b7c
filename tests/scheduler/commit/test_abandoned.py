"""Plans of gangs that nobody carries out any more are taken back; those that somebody does are left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.client.resources import POD_GROUPS, PODS
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.nodes.shape import ReservationFault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import BINDING, bound, create, create_gang, is_call, pod, settle, share, strike_all
from wire import names

#: As long as the binder waits for the rest of a gang (binder/settings.py).
BINDER_S = 40


def is_handed_over(call: Call) -> bool:
    return call.user.startswith("scheduler") and (call.verb, call.kind.plural) == ("create", "bindrequests")


def member(call: Call) -> str:
    """Of which pod a BindRequest is, that is being made."""
    told: str = call.decoded()["spec"]["podName"]
    return told


@asynccontextmanager
async def handed_over_in_part(*, schedulers: int = 1) -> AsyncIterator[World]:
    """A gang of three of which one was handed over, when all schedulers died."""
    async with stage.stage("1x4x80GiB", settings=WorldSettings(seed=1, schedulers=schedulers)) as world:
        world.server.faults.on_request.append(
            lambda call: Fault(lost="request") if is_handed_over(call) and member(call) != "m0" else None
        )
        await create_gang(world, "g", 3, share("m0"), share("m1"), share("m2"))
        await settle(1)
        assert bound(world) == set()
        for name in schedulers_of(world):
            world.components[name].crash()
        world.server.faults.on_request.clear()
        yield world


def schedulers_of(world: World) -> list[str]:
    return [name for name in world.components if name.startswith("scheduler")]


async def bound_after(world: World, count: int, *, within_s: int) -> int:
    """After how many seconds so many pods are bound."""
    for seconds in range(within_s):
        if len(bound(world)) == count:
            return seconds
        await settle(1)
    raise AssertionError(f"only {bound(world)} bound after {within_s} s")


def taken_back(world: World) -> list[str]:
    """BindRequests that schedulers have deleted, by their pods."""
    return [name for scheduler in schedulers_of(world) for name in _deleted(world, scheduler)]


def _deleted(world: World, scheduler: str) -> list[str]:
    asked = (scheduler, "delete", "bindrequests")
    return [
        entry.name
        for entry in world.server.audit
        if (entry.user, entry.verb, entry.resource) == asked and entry.code < 300
    ]


async def test_a_plan_that_an_earlier_scheduler_left_is_taken_back() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create_gang(world, "g", 2, *(pod(f"m{i}", gpus=1) for i in range(2)))
        await settle()
        uid = stage.find(world, "m0")["metadata"]["uid"]
        plan = '{"id":"left-over","members":{"' + uid + '":{"node":"node-0"}}}'
        written = {"metadata": {"annotations": {names.PLAN: plan}}}
        await stage.api_of(world, "scheduler").patch(POD_GROUPS, "g", written, namespace=stage.TEAM)
        await world.restart(world.scheduler)
        await settle(20)
        group = await world.api.get(POD_GROUPS, "g", namespace=stage.TEAM)
        assert names.PLAN not in (group.metadata.annotations or {})
        assert stage.find(world, "m0")["metadata"]["annotations"][names.FENCED].startswith("plan-")


async def test_after_a_crash_nobody_is_given_the_room_of_a_gang_that_is_bound_in_part() -> None:
    async with stage.stage("1x2x80GiB") as world:
        binding = BINDING
        world.server.faults.on_request.append(
            lambda call: Fault(lost="request") if binding(call) and call.name == "m1" else None
        )
        await create_gang(world, "g", 2, pod("m0", gpus=1), pod("m1", gpus=1))
        await settle(1)
        assert bound(world) == {"m0"}
        world.scheduler.crash()
        world.server.faults.on_request.clear()
        await create(world, pod("other", gpus=1))
        await world.restart(world.scheduler)
        await settle(60)
        assert bound(world) == {"m0", "m1"}


async def test_a_gang_that_was_handed_over_in_part_is_decided_on_anew_long_before_the_binder_gives_it_up() -> None:
    async with handed_over_in_part() as world:
        await world.restart(world.scheduler)
        assert await bound_after(world, 3, within_s=60) < BINDER_S / 2
        assert taken_back(world) == ["m0"]


async def test_a_gang_of_which_a_pod_is_gone_is_left_to_the_binder() -> None:
    """It may have been bound and have ended."""
    async with handed_over_in_part() as world:
        await world.api.delete(PODS, "m2", namespace=stage.TEAM)
        late = share("m3")
        late["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
        await create(world, late)
        await world.restart(world.scheduler)
        assert await bound_after(world, 3, within_s=60) > BINDER_S / 2
        assert taken_back(world) == []


@pytest.mark.parametrize("verb", ["get", "delete"])
@pytest.mark.parametrize("code", [403, 503])
async def test_a_gang_that_can_not_be_taken_back_waits_no_longer_than_the_binder(verb: str, code: int) -> None:
    async with handed_over_in_part() as world:
        strike_all(world, is_call("scheduler", verb, "bindrequests"), Fault(refuse_with=code))
        await world.restart(world.scheduler)
        assert await bound_after(world, 3, within_s=120) < BINDER_S + 10


def short(name: str) -> dict[str, Any]:
    """A pod that succeeds after a second."""
    made = share(name, **{"simulator.moorage.dev/run-s": "1"})
    made["spec"]["restartPolicy"] = "Never"
    return made


@pytest.mark.parametrize("away_s", [1.0, 15.0, 60.0])
@pytest.mark.parametrize("crashes", [(), ("scheduler",)], ids=["same scheduler", "another"])
async def test_the_last_of_a_gang_is_bound_though_the_others_have_succeeded(away_s: float, crashes: tuple[str]) -> None:
    async with stage.stage("1x4x80GiB", settings=WorldSettings(seed=1, gang_grace_s=1000)) as world:
        posted = is_call("binder", "create", "pods", "binding")
        world.server.faults.on_request.append(
            lambda call: Fault(lost="request") if posted(call) and call.name == "m0" else None
        )
        await create_gang(world, "g", 3, share("m0"), short("m1"), short("m2"))
        while bound(world) != {"m1", "m2"}:
            await settle(0.1)
        for name in ("binder", *crashes):
            world.components[name].crash()
        await settle(1)
        for name in crashes:
            await world.restart(world.components[name])
        await settle(away_s)
        world.server.faults.on_request.clear()
        await world.restart(world.binder)
        await settle(100)
        assert "m0" in bound(world)
        assert taken_back(world) == []


async def test_two_schedulers_leave_a_slow_hand_over_of_each_other_alone() -> None:
    async with stage.stage("2x8x80GiB", settings=WorldSettings(seed=1, schedulers=2)) as world:
        world.server.faults.on_request.append(
            lambda call: Fault(delay_s=0.8 * int(member(call)[1:])) if is_handed_over(call) else None
        )
        await create_gang(world, "g", 12, *(share(f"m{i}") for i in range(12)))
        assert await bound_after(world, 12, within_s=60) < BINDER_S / 2
        assert taken_back(world) == []


async def test_only_what_was_handed_over_of_that_plan_is_taken_back() -> None:
    """One of two schedulers is told late that a member is not handed over, when the other has planned anew."""
    async with handed_over_in_part(schedulers=2) as world:
        world.nodes["node-0"].faults.reservation = ReservationFault(delay_s=25.0)
        strike_all(world, is_call("scheduler-2", "get", "bindrequests"), Fault(answer_delay_s=8.0))
        for name in schedulers_of(world):
            await world.restart(world.components[name])
        await bound_after(world, 3, within_s=90)
        assert taken_back(world) == ["m0"]


async def test_a_hand_over_that_a_watch_tells_late_is_read_and_left_alone() -> None:
    # Which lines come behind that of m2 is by UIDs, and a record of evictions would have one.
    alone = SchedulerSettings(decisions=Settings(preemption=False))
    async with stage.stage("1x4x80GiB", settings=WorldSettings(seed=1, schedulers=2, scheduler=alone)) as world:
        world.nodes["node-0"].faults.reservation = ReservationFault(delay_s=25.0)
        world.server.faults.on_watch_line.append(
            lambda call, line: 20.0 if call.user.startswith("scheduler") and b'"podName":"m2"' in line else 0.0
        )
        await create_gang(world, "g", 3, *(share(f"m{i}") for i in range(3)))
        await bound_after(world, 3, within_s=35)
        assert taken_back(world) == []
        read = [entry.name for entry in world.server.audit if (entry.verb, entry.resource) == ("get", "bindrequests")]
        # Lines behind that of m2 are as late, whichever those are.
        assert "m2" in read
