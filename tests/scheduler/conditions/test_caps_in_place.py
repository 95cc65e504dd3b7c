"""The condition of pods with memory caps, by what agents report: on change, not for long, and never by a dead one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from binder.settings import BinderSettings
from gpu.limits import MemoryCaps
from kube.client.resources import EVENTS, GPU_NODES, NAMESPACES, PODS
from scheduler.settings import SchedulerSettings
from simulator.apiserver.faults import Fault
from simulator.apiserver.types import MOORAGE
from simulator.clock import VirtualClock
from simulator.installation import SERVICE_ACCOUNTS
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import TEAM, create, find, is_call, settle, share, writes
from wire import names
from wire.rfc3339 import rfc3339

SETTINGS = WorldSettings(
    seed=1,
    scheduler=SchedulerSettings(memory_caps=MemoryCaps.ALL, follows_use=True),
    binder=BinderSettings(memory_caps=MemoryCaps.ALL),
)


@asynccontextmanager
async def node_with_agent(enforced: str = "kill") -> AsyncIterator[World]:
    """One node with an agent, and pod a, which has half of its GPU and a cap."""
    async with stage.stage("1x1x40GiB", settings=SETTINGS, before=lambda w: w.server.define(MOORAGE[0])) as world:
        await world.api.create(NAMESPACES, {"metadata": {"name": names.NODE_NAMESPACE}})
        account = {"metadata": {"name": names.NODE_AGENT_SERVICE_ACCOUNT}}
        await world.api.create(SERVICE_ACCOUNTS, account, namespace=names.NODE_NAMESPACE)
        spec = {
            "nodeName": "node-0",
            "serviceAccountName": names.NODE_AGENT_SERVICE_ACCOUNT,
            "containers": [{"name": "c", "image": "i"}],
        }
        await world.api.create(PODS, {"metadata": {"name": "agent"}, "spec": spec}, namespace=names.NODE_NAMESPACE)
        await world.api.create(GPU_NODES, {"metadata": {"name": "node-0"}})
        await ready(world, "True")
        await create(world, share("a", mps="false"))
        await settle(30)
        await report(world, enforced)
        await settle(60)
        yield world


async def ready(world: World, status: str) -> None:
    condition = {
        "type": "Ready",
        "status": status,
        "lastTransitionTime": rfc3339(VirtualClock(asyncio.get_running_loop()).now_ns()),
    }
    body = {"status": {"conditions": [condition]}}
    await world.api.patch(PODS, "agent", body, namespace=names.NODE_NAMESPACE, subresource="status")


async def report(world: World, enforced: str, *, why: str = "") -> None:
    (held,) = (await world.api.list(PODS, namespace=names.RESERVATION_NAMESPACE)).items
    card = (held.metadata.annotations or {})[names.RESERVE_FOR_GPU_INDEX]
    tenant = {"podUID": find(world, "a")["metadata"]["uid"], "pod": f"{TEAM}/a", "card": card, "enforced": enforced}
    agent: dict[str, Any] = {"backEnds": ["kill"] if enforced else None, "missing": None}
    if why:
        agent["missing"] = [{"what": "memory caps", "why": why}]
    status = {"tenants": [tenant], "agent": agent}
    await world.api.patch(GPU_NODES, "node-0", {"status": status}, subresource="status")


def told(world: World, name: str = "a") -> list[tuple[str, str]]:
    found = find(world, name)["status"].get("conditions") or []
    return [(c["status"], c["reason"]) for c in found if c["type"] == names.CONDITION_LIMITS_ENFORCED]


def count(world: World) -> int:
    return len(writes(world, "scheduler", "pods", "status"))


async def test_a_cap_that_the_agent_saw_in_place_is_told_once() -> None:
    async with node_with_agent() as world:
        assert told(world) == [("True", "EnforcedByKilling")]
        before = len(world.server.write_log)
        await settle(3600)
        assert len(world.server.write_log) == before
        kinds = {c["type"] for c in find(world, "a")["status"]["conditions"]}
        assert {"Ready", names.CONDITION_POD_SCHEDULED} <= kinds


async def test_a_warden_that_is_gone_is_told_of_after_half_a_minute_with_an_event() -> None:
    async with node_with_agent() as world:
        await report(world, "", why="no warden: it closed the connection")
        await settle(20)
        assert told(world) == [("True", "EnforcedByKilling")]
        await settle(30)
        assert told(world) == [("False", "NotInPlace")]
        events = await world.api.list(EVENTS, namespace=TEAM)
        (note,) = [each.note for each in events.items if each.reason == names.REASON_LIMITS_NOT_IN_PLACE]
        assert note.endswith("is not enforced now: no warden: it closed the connection")
        await report(world, "kill")
        await settle(30)
        assert told(world) == [("True", "EnforcedByKilling")]


async def test_a_short_pause_of_a_warden_changes_no_pod() -> None:
    async with node_with_agent() as world:
        written = count(world)
        for _ in range(5):
            await report(world, "")
            await settle(20)
            await report(world, "kill")
            await settle(20)
        assert count(world) == written


async def test_an_agent_that_does_not_work_for_minutes_makes_it_unknown_and_a_new_one_at_once_does_not() -> None:
    async with node_with_agent() as world:
        written = count(world)
        await ready(world, "False")
        await settle(200)
        await ready(world, "True")
        await settle(600)
        assert (told(world), count(world)) == ([("True", "EnforcedByKilling")], written)
        await ready(world, "False")
        await settle(400)
        assert told(world) == [("Unknown", "AgentNotReady")]
        await ready(world, "True")
        await settle(60)
        assert told(world) == [("True", "EnforcedByKilling")]
        assert count(world) == written + 2


async def test_a_new_version_of_agents_changes_no_pod_however_old_the_report() -> None:
    async with node_with_agent() as world:
        written = count(world)
        old = rfc3339(VirtualClock(asyncio.get_running_loop()).now_ns() - 86_400 * 10**9)
        await world.api.patch(GPU_NODES, "node-0", {"status": {"reportedAt": old}}, subresource="status")
        spec = (await world.api.get(PODS, "agent", namespace=names.NODE_NAMESPACE)).spec
        await world.api.delete(PODS, "agent", namespace=names.NODE_NAMESPACE)
        await settle(20)
        # The next one has no condition before kubelet has written one.
        body = {"metadata": {"name": "agent"}, "spec": {**msgspec.to_builtins(spec), "nodeName": "node-0"}}
        await world.api.create(PODS, body, namespace=names.NODE_NAMESPACE)
        await settle(60)
        await ready(world, "True")
        await settle(600)
        assert (told(world), count(world)) == ([("True", "EnforcedByKilling")], written)


async def test_agents_that_are_taken_away_make_it_unknown_after_minutes() -> None:
    async with node_with_agent() as world:
        await world.api.delete(PODS, "agent", namespace=names.NODE_NAMESPACE)
        await settle(280)
        assert told(world) == [("True", "EnforcedByKilling")]
        await settle(60)
        assert told(world) == [("Unknown", "AgentNotReady")]


async def test_a_report_that_changes_all_the_time_changes_a_pod_ever_more_seldom() -> None:
    """As the token of an agent could have it, which was taken from its node."""
    async with node_with_agent() as world:
        before = count(world)
        for _ in range(90):
            await report(world, "driver")
            await settle(20)
            await report(world, "kill")
            await settle(20)
        assert 5 < count(world) - before < 12
        await settle(1_800)
        assert told(world) == [("True", "EnforcedByKilling")]


async def test_a_new_pod_on_a_node_whose_agent_has_been_away_says_that_nobody_knows() -> None:
    async with node_with_agent() as world:
        at = "2026-01-01T00:00:00Z"
        await world.api.patch(GPU_NODES, "node-0", {"status": {"reportedAt": at}}, subresource="status")
        await ready(world, "False")
        await settle(1_000)
        await create(world, share("b", mps="false"))
        await settle(20)
        assert told(world, "b") == []
        await settle(40)
        assert told(world, "b") == [("Unknown", "AgentNotReady")]
        (message,) = [
            c["message"] for c in find(world, "b")["status"]["conditions"] if c.get("reason") == "AgentNotReady"
        ]
        assert message.endswith(f"; its last report is of {at}")
        before = len(world.server.write_log)
        await settle(3_600)
        assert len(world.server.write_log) == before
        await ready(world, "True")
        await settle(60)
        assert told(world, "b") == [("False", "NotInPlace")]


async def test_a_new_pod_whose_node_enforces_nothing_keeps_saying_that() -> None:
    async with node_with_agent() as world:
        await ready(world, "False")
        await settle(1_000)
        await create(world, share("b", mps="true"))
        await settle(600)
        assert told(world, "b") == [("False", "NotEnforced")]


async def test_where_nothing_caps_and_nothing_did_no_pod_is_told() -> None:
    async with node_with_agent("") as world:
        await settle(600)
        assert told(world) == []
        await ready(world, "False")
        await settle(900)
        assert told(world) == []


@pytest.mark.parametrize("fault", [Fault(refuse_with=500), Fault(refuse_with=409), Fault(lost="answer", breaks=True)])
async def test_a_write_that_failed_is_repeated(fault: Fault) -> None:
    async with node_with_agent() as world:
        hits = is_call("scheduler", "patch", "pods", "status")
        left = [fault] * (1 if fault.is_carried_out else 3)
        world.server.faults.on_request.append(lambda call: left.pop() if left and hits(call) else None)
        await report(world, "", why="x")
        await settle(120)
        assert (told(world), left) == ([("False", "NotInPlace")], [])
