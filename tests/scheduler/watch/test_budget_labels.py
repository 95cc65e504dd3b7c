"""Labels that budgets may select pods by: known of all bound pods where there is a budget, and of nobody elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from kube.client.resources import PODS
from simulator.apiserver.faults import Fault
from tests.scheduler.preemption.roomstage import BUDGETS, NS, Process, stage
from tests.simulator.apiserver.calls import send


def labels(process: Process) -> Mapping[str, Mapping[str, str]]:
    known: Mapping[str, Mapping[str, str]] = process.cache.room.facts().labels
    return known


async def test_labels_are_read_when_the_first_budget_appears_and_forgotten_with_the_last() -> None:
    async with stage("v0", "v1") as (at, tasks):
        await at.pod("h", is_bound=False)
        process = Process(at, "scheduler")
        await process.start(tasks)
        assert labels(process) == {}
        client = at.server.transport()
        for name in ("b", "c"):
            await send(client, "POST", BUDGETS, {"metadata": {"name": name}, "spec": {"selector": {}}})
        await anyio.sleep(1)
        assert {uid: of["app"] for uid, of in labels(process).items()} == {at.uids["v0"]: "a", at.uids["v1"]: "a"}
        lists = [e for e in at.server.audit if (e.user, e.verb, e.resource) == ("scheduler", "list", "pods")]
        assert len(lists) == 2  # the cache's own, and one of this namespace
        await send(client, "DELETE", f"{BUDGETS}/b")
        await anyio.sleep(1)
        assert len(labels(process)) == 2
        await send(client, "DELETE", f"{BUDGETS}/c")
        await anyio.sleep(1)
        assert labels(process) == {}


async def test_labels_follow_pods_that_change_come_and_go() -> None:
    async with stage("v0") as (at, tasks):
        await send(at.server.transport(), "POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": {}}})
        process = Process(at, "scheduler")
        await process.start(tasks)
        await at.pod("v1")
        await at.api.patch(PODS, "v0", {"metadata": {"labels": {"app": "other"}}}, namespace=NS)
        await anyio.sleep(1)
        assert {uid: of["app"] for uid, of in labels(process).items()} == {at.uids["v0"]: "other", at.uids["v1"]: "a"}
        await at.api.delete(PODS, "v1", namespace=NS, grace_s=0)
        await at.api.patch(PODS, "v0", {"status": {"phase": "Succeeded"}}, namespace=NS, subresource="status")
        await anyio.sleep(1)
        assert labels(process) == {}


async def test_a_list_that_was_late_changes_nothing_that_is_newer() -> None:
    async with stage("v0") as (at, tasks):
        process = Process(at, "scheduler")
        await process.start(tasks)
        at.server.faults.on_request.append(
            lambda call: Fault(answer_delay_s=5.0) if call.verb == "list" and call.kind.plural == "pods" else None
        )
        await send(at.server.transport(), "POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": {}}})
        await anyio.sleep(1)
        await at.api.patch(PODS, "v0", {"metadata": {"labels": {"app": "newer"}}}, namespace=NS)
        await anyio.sleep(10)
        assert labels(process)[at.uids["v0"]]["app"] == "newer"
