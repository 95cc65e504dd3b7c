"""ResourceClaims whose devices were given twice are told, and counted."""

from __future__ import annotations

from collections import deque
from typing import Any

import anyio
import msgspec

from kube.events import EventRecorder
from scheduler.conditions.enforcement import ClashingClaims
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.report.state import SchedulerState
from scheduler.watch.cache import Cache
from tests.kube.lead.test_lease import LoopClock
from tests.kube.scripted import ScriptedTransport, api_over, ok
from tests.scheduler.core.nodes.claiming import claimed
from tests.scheduler.core.objects import feed
from wire import names


async def test_each_of_two_claims_with_one_device_is_told_once_and_counted_until_one_gives_back() -> None:
    cache = Cache(Cluster(Settings()))
    transport = ScriptedTransport(deque([ok({"metadata": {"name": "e"}}, status=201)] * 10))
    events = EventRecorder(api_over(transport), clock=LoopClock(0), controller="kai-scheduler", instance="s-0")
    clashing, state = ClashingClaims(cache, events), SchedulerState(cache, {})
    state.is_leading = True
    feed(cache.cluster, claimed("x", on=("a", "d0")), claimed("z", on=("a", "d1")))
    clashing.tell()
    assert state.clashing_claims() == 0
    feed(cache.cluster, claimed("y", on=("a", "d0")))
    for _ in range(2):
        clashing.tell()
    assert state.clashing_claims() == 2
    feed(cache.cluster, claimed("y"))
    clashing.tell()
    assert state.clashing_claims() == 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.run)
        await anyio.sleep(10)
        tasks.cancel_scope.cancel()
    bodies: list[dict[str, Any]] = [asked.body for asked in transport.requests]
    told = {body["regarding"]["name"]: (body["reason"], body["note"]) for body in bodies}
    text = "Devices of this claim were also given to ns/{}: let one scheduler allocate from these pools"
    assert (len(bodies), told) == (
        2,
        {other: (names.REASON_ALLOCATED_TWICE, text.format(named)) for other, named in (("x", "y"), ("y", "x"))},
    )


async def test_a_claim_of_another_namespace_has_no_name() -> None:
    cache = Cache(Cluster(Settings()))
    transport = ScriptedTransport(deque([ok({"metadata": {"name": "e"}}, status=201)] * 10))
    events = EventRecorder(api_over(transport), clock=LoopClock(0), controller="kai-scheduler", instance="s-0")
    own, more = claimed("y", on=("a", "d0")), claimed("z", on=("a", "d0"))
    theirs = [
        msgspec.structs.replace(
            each, metadata=msgspec.structs.replace(each.metadata, name=f"canary-{number}", namespace="canary")
        )
        for number, each in enumerate((own, more))
    ]
    feed(cache.cluster, claimed("x", on=("a", "d0")), *theirs)
    ClashingClaims(cache, events).tell()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.run)
        await anyio.sleep(10)
        tasks.cancel_scope.cancel()
    told = {body["regarding"]["name"]: body["note"] for asked in transport.requests if (body := asked.body)}
    assert "also given to 2 claims of other namespaces: let" in told["x"]
    assert "also given to canary/canary-1, 1 claim of other namespaces: let" in told["canary-0"]


def test_a_replica_that_follows_counts_none() -> None:
    cache = Cache(Cluster(Settings()))
    feed(cache.cluster, claimed("x", on=("a", "d0")), claimed("y", on=("a", "d0")))
    assert SchedulerState(cache, {}).clashing_claims() == 0
