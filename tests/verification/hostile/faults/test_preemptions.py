"""Faults of room that is made: the record, nominated pods, their queue, and budgets. Nothing is left of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube.client import errors
from kube.client.resources import CONFIG_MAPS, PODS, QUEUES
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from tests.verification.hostile.faults.grounds import NAMESPACE, Stage, stage
from verification.hostile.faults.objects import (
    NominationConflict,
    NominationsDeleted,
    NomineeGoes,
    QueueVanishes,
    TwoBudgets,
)
from wire import names

#: For a record that a test writes: a scheduler that makes room has one of its own.
_MAKES_NONE = SchedulerSettings(decisions=Settings(preemption=False))
RECORD = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.NOMINATIONS}"


async def written(on: Stage, *nominees: str) -> None:
    """A record with a nomination for each of these pods (UIDs)."""
    nominations = [{"id": uid, "places": [[f"={uid}", "node-0"]], "victims": []} for uid in nominees]
    data = {"nominations": json.dumps({"nominations": nominations, "evicted": {}})}
    body = {"metadata": {"name": names.NOMINATIONS}, "data": data}
    await on.world.api.create(CONFIG_MAPS, body, namespace=names.SYSTEM_NAMESPACE)


async def is_there(on: Stage, kind: Any, name: str, namespace: str = "") -> bool:
    try:
        await on.world.api.get(kind, name, namespace=namespace)
    except errors.NotFound:
        return False
    return True


async def waiting(on: Stage, name: str, queue: str = "") -> str:
    """A pod that fits nowhere; its UID."""
    container = {"name": "main", "image": "work", "resources": {"limits": {"nvidia.com/gpu": "64"}}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container]}
    labels = {names.QUEUE_LABEL: queue} if queue else {}
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    return (await on.world.api.create(PODS, body, namespace=NAMESPACE)).metadata.uid


async def test_writes_of_the_record_are_conflicts_for_a_time_and_no_others_are() -> None:
    async with stage() as on:
        await written(on)
        on.strike(NominationConflict(at_s=10, for_s=10))
        await on.until(11)
        patch = {"data": {"other": "x"}}
        assert (await on.request("scheduler", "PATCH", RECORD, body=patch)).status == 409
        assert (await on.request("scheduler", name="anything")).status == 201
        await on.until(21)
        assert (await on.request("scheduler", "PATCH", RECORD, body=patch)).status == 200


async def test_the_record_is_deleted_as_often_as_it_comes() -> None:
    async with stage() as on:
        on.strike(NominationsDeleted(at_s=5, for_s=10, every_s=1))
        for at_s in (6.5, 9.5):
            await on.until(at_s)
            await written(on)
            await on.until(at_s + 1.5)
            assert not await is_there(on, CONFIG_MAPS, names.NOMINATIONS, names.SYSTEM_NAMESPACE)
        await on.until(16)
        await written(on)
        await on.until(20)
        assert await is_there(on, CONFIG_MAPS, names.NOMINATIONS, names.SYSTEM_NAMESPACE)


async def test_who_room_is_made_for_is_deleted_and_nobody_else() -> None:
    async with stage(scheduler=_MAKES_NONE) as on:
        uid = await waiting(on, "h")
        await waiting(on, "other")
        await written(on, uid)
        on.strike(NomineeGoes(at_s=5, for_s=5))
        await on.until(7)
        assert not await is_there(on, PODS, "h", NAMESPACE)
        assert await is_there(on, PODS, "other", NAMESPACE)


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_the_queue_of_who_room_is_made_for_goes_and_comes_back(is_made_again: bool) -> None:
    spec = {"resources": {"gpu": {"quota": 1, "limit": -1, "overQuotaWeight": 1}}}
    async with stage(scheduler=_MAKES_NONE) as on:
        for name in ("a", "b"):
            await on.world.api.create(QUEUES, {"metadata": {"name": name}, "spec": spec})
        await written(on, await waiting(on, "h", "a"))
        on.strike(QueueVanishes(at_s=5, for_s=10))
        await on.until(7)
        assert (await is_there(on, QUEUES, "a"), await is_there(on, QUEUES, "b")) == (False, True)
        if is_made_again:
            await on.world.api.create(QUEUES, {"metadata": {"name": "a"}, "spec": spec})
        await on.until(16)
        queue = await on.world.api.get(QUEUES, "a")
        assert queue.spec.resources is not None
        assert queue.spec.resources.gpu is not None
        assert queue.spec.resources.gpu.quota == 1


async def test_nobody_can_be_evicted_under_two_budgets_for_a_time() -> None:
    async with stage() as on:
        await on.pod("p", gpus=1)
        await on.until(20)
        on.strike(TwoBudgets(at_s=20, for_s=10))
        await on.until(22)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/p/eviction"
        answer = await on.request("scheduler", path=path, body={"metadata": {"name": "p"}})
        assert (answer.status, b"more than one PodDisruptionBudget" in answer.body) == (500, True)
        await on.until(31)
        assert (await on.request("scheduler", path=path, body={"metadata": {"name": "p"}})).status == 201
