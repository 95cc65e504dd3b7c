"""A pod that others change again and again costs little, and is bound, or told, when it comes to rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import anyio

from kube.client.resources import PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.binder.cluster import BINDER, TEAM, Cluster, cluster

#: Shorter than what lies between a read and the Binding that rests on it: four calls of 10 ms.
EVERY_S = 0.01
LASTS_S = 30.0
#: Pauses of 0, 50, 100, 200, 400 and 800 ms, then of a second each.
MOST_ROUNDS = 36


def _slow(call: Call) -> Fault | None:
    return Fault(delay_s=0.01) if call.user == BINDER else None


@asynccontextmanager
async def _changing(it: Cluster, name: str = "p") -> AsyncIterator[None]:
    async def change() -> None:
        for number in count():
            patch = {"metadata": {"annotations": {"example.com/note": str(number)}}}
            await it.api.patch(PODS, name, patch, namespace=TEAM)
            await anyio.sleep(EVERY_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(change)
        yield
        tasks.cancel_scope.cancel()


def _renewals(it: Cluster) -> int:
    return it.writes(BINDER).count("patch pods")


async def test_a_pod_that_is_changed_all_the_time_is_renewed_ever_more_slowly_and_bound_when_that_ends() -> None:
    async with cluster() as it:
        it.kubelet.start_s = 1.0
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(0.5)
        it.server.faults.on_request.append(_slow)
        async with _changing(it):
            await anyio.sleep(1.5)
            before = _renewals(it)
            await anyio.sleep(LASTS_S)
            assert not await it.is_bound()
            assert 10 < _renewals(it) - before <= MOST_ROUNDS
        await it.until(it.is_bound, limit_s=2)
        (entry,) = (await it.book()).entries.values()
        assert await it.tenants() == {"p"}
        assert entry.rv


async def test_a_failed_attempt_asks_ever_more_slowly_for_the_fence_of_a_pod_that_is_changed_all_the_time() -> None:
    async with cluster(learn_timeout_s=5.0) as it:
        it.kubelet.silent.add("node-1")
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(0.5)
        it.server.faults.on_request.append(_slow)
        async with _changing(it):
            await anyio.sleep(6)
            before = _requests(it)
            await anyio.sleep(LASTS_S)
            assert not await it.is_fenced()
            # A read, and the fence: which reads before it writes, and again when it was refused.
            assert 10 < _requests(it) - before <= 4 * MOST_ROUNDS
        await it.until(it.is_fenced, limit_s=2)
        await anyio.sleep(5)
        assert await it.requests() == []


def _requests(it: Cluster) -> int:
    return sum((entry.user, entry.resource, entry.name) == (BINDER, "pods", "p") for entry in it.server.audit)


async def test_a_pod_that_is_changed_once_on_its_way_does_not_wait() -> None:
    async with cluster() as it:
        it.kubelet.start_s = 1.0
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(0.5)
        await it.api.patch(PODS, "p", {"metadata": {"labels": {"mine": "1"}}}, namespace=TEAM)
        held_s = anyio.current_time() + 0.75
        await it.until(it.is_bound)
        assert anyio.current_time() < held_s
