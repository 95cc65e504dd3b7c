"""The real scheduler on a simulated cluster: pods are evicted for others, which then run in their place."""

from __future__ import annotations

import msgspec
import pytest

from kube.client.resources import PODS
from kube.lead.lease import LeaseSettings
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator.world import WorldSettings
from tests.scheduler.preemption.wholestage import SETTINGS, cluster, evictions, urgent
from tests.scheduler.stage import TEAM, bound, create, phases, pod, settle
from tests.simulator.apiserver.calls import send


async def test_an_urgent_pod_runs_in_the_place_of_another_one_of_its_queue() -> None:
    async with cluster("1x4x80GiB") as world:
        await create(world, *(pod(f"p{i}", gpus=1) for i in range(4)))
        await settle()
        await create(world, urgent("h"))
        await settle(60)
        assert phases(world)["h"] == "Running"
        assert len(evictions(world)) == 1


async def test_without_the_setting_nobody_is_evicted_and_no_record_is_read() -> None:
    settings = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings(preemption=False)))
    async with cluster("1x1x80GiB", settings=settings) as world:
        await create(world, pod("p", gpus=1))
        await settle()
        await create(world, urgent("h"))
        await settle(60)
        assert phases(world) == {"p": "Running", "h": "Pending"}
        kinds = {"configmaps", "poddisruptionbudgets"}
        assert not [e for e in world.server.audit if e.user == "scheduler" and e.resource in kinds]


@pytest.mark.parametrize("election", [None, LeaseSettings()], ids=["both work", "one leads"])
async def test_two_schedulers_evict_as_many_as_are_needed(election: LeaseSettings | None) -> None:
    settings = msgspec.structs.replace(SETTINGS, schedulers=2, election=election)
    async with cluster("2x4x80GiB", settings=settings) as world:
        await create(world, *(pod(f"p{i}", gpus=1) for i in range(8)))
        await settle(30)
        assert len(bound(world)) == 8
        await create(world, *(urgent(f"h{i}") for i in range(4)))
        await settle(120)
        assert {phases(world)[f"h{i}"] for i in range(4)} == {"Running"}
        assert len(set(evictions(world))) == len(evictions(world)) == 4


async def test_what_a_leader_that_died_has_freed_is_kept_for_its_holder() -> None:
    settings = msgspec.structs.replace(SETTINGS, schedulers=2, election=LeaseSettings())
    async with cluster("1x1x80GiB", settings=settings) as world:
        await create(world, pod("p", gpus=1, terminationGracePeriodSeconds=30))
        await settle(30)
        await create(world, urgent("h"))
        await settle(0.5)
        assert evictions(world) == ["p"]
        leader = next(e.user for e in world.server.audit if e.subresource == "eviction")
        world.components[leader].crash()
        await create(world, urgent("thief"))  # it is as urgent, and comes later
        await settle(120)
        assert phases(world) == {"h": "Running", "thief": "Pending"}


async def test_a_pod_whose_budget_is_spent_stays_and_another_one_goes() -> None:
    async with cluster("1x2x80GiB") as world:
        kept, goes = pod("kept", gpus=1), pod("goes", gpus=1)
        kept["metadata"]["labels"] = {"app": "a"}
        await create(world, kept, goes)
        await settle()
        client = world.server.transport()
        selector = {"matchLabels": {"app": "a"}}
        budgets = f"/apis/policy/v1/namespaces/{TEAM}/poddisruptionbudgets"
        await send(client, "POST", budgets, {"metadata": {"name": "b"}, "spec": {"selector": selector}})
        status = {"observedGeneration": 1, "disruptionsAllowed": 0}
        await send(client, "PATCH", f"{budgets}/b/status", {"status": status})
        await settle(1)
        await create(world, urgent("h"), urgent("i"))
        await settle(300)
        assert evictions(world) == ["goes"]
        assert phases(world)["kept"] == "Running"
        assert sorted(phases(world)[name] for name in ("h", "i")) == ["Pending", "Running"]
        asked = [e for e in world.server.audit if e.subresource == "eviction"]
        assert len(asked) == 1  # it was counted in advance, and nobody was asked in vain
        waiting = next(name for name in ("h", "i") if phases(world)[name] == "Pending")
        found = await world.api.get(PODS, waiting, namespace=TEAM)
        (condition,) = [each for each in found.status.conditions or () if each.type == "PodScheduled"]
        assert "1 pod that could be evicted for it is protected. A PodDisruptionBudget allows" in condition.message


async def test_a_holder_that_goes_spares_who_was_not_asked_and_what_it_freed_is_anybodys() -> None:
    async with cluster("1x1x80GiB") as world:
        await create(world, pod("p", gpus=1, terminationGracePeriodSeconds=20))
        await settle()
        await create(world, urgent("h"))
        await settle(1)
        assert evictions(world) == ["p"]
        await world.api.delete(PODS, "h", namespace=TEAM)
        await create(world, pod("q", gpus=1))
        await settle(60)
        assert phases(world) == {"q": "Running"}
