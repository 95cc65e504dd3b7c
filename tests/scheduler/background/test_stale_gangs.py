"""The rest of a gang below its minimum goes by the evictor: budgets hold, and a gang that was refused is judged again.

What is decided of such gangs is told in tests/scheduler/commit/test_gangs.py and test_gang_trees.py.
"""

from __future__ import annotations

import pytest

from kube.client.resources import PODS
from scheduler.app import Scheduler
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import bound, create_gang, is_call, pod, settle
from tests.simulator.apiserver.calls import send
from wire import names

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
