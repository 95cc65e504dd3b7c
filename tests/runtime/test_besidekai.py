"""A KAI that starts beside a replica of ours. In virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import EVENTS, LEASES, PODS
from kube.client.retry import Retry
from kube.events import EventRecorder
from runtime.kai_beside import ELSEWHERE_EVERY, EVERY_S, BesideKai, IfKaiStarts
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.conftest import AnyioBackend
from tests.runtime.test_livekai import _ACCOUNTS, BINDER, IMAGE, lease, make
from wire import names

SHARD = "kai-scheduler-pool-a"


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


class Cluster:
    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.server = MemoryApiServer(clock=self.clock, rng=random.Random(1), auto_namespaces=True)
        self.api = Api(self.server.transport(), retry=Retry(random.Random(1), tries=1))

    async def start_kai(self, namespace: str = names.SYSTEM_NAMESPACE) -> None:
        await self.api.create(_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=namespace)
        await make(self.api, labels=BINDER, image=IMAGE, namespace=namespace)

    async def renew_lease(self) -> None:
        """A shard's scheduler that runs outside of pods."""
        await self.api.create(LEASES, lease("kai-0", SHARD), namespace=names.SYSTEM_NAMESPACE)
        for number in range(1, 100):
            await anyio.sleep(5.0)
            await self.api.patch(LEASES, SHARD, lease(f"kai-{number}", SHARD), namespace=names.SYSTEM_NAMESPACE)

    async def events(self) -> list[tuple[str, str]]:
        listed: Any = await self.api.list(EVENTS, namespace=names.SYSTEM_NAMESPACE)
        return [(event.reason, event.note) for event in listed.items]


@asynccontextmanager
async def beside(cluster: Cluster, choice: IfKaiStarts = IfKaiStarts.STOP) -> AsyncIterator[BesideKai]:
    events = EventRecorder(cluster.api, clock=cluster.clock, controller="kai-scheduler", instance="one")
    made = BesideKai(cluster.api, events, lease="moorage-scheduler", choice=choice)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.run)
        tasks.start_soon(made.run)
        await anyio.sleep(60.0)
        assert not made.noticed.is_set()
        yield made
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("choice", IfKaiStarts)
async def test_its_pods_are_noticed_told_once_and_made_way_for_unless_told_otherwise(
    choice: IfKaiStarts, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    async with beside(cluster, choice) as made:
        await cluster.start_kai()
        await anyio.sleep(3 * EVERY_S)
        assert made.is_there
        assert made.noticed.is_set() == (choice is IfKaiStarts.STOP)
        (said,) = await cluster.events()
        assert said[0] == "KAIAtWork"
        assert "KAI Scheduler is at work in this cluster (pod kai-scheduler/one)" in said[1]
        assert ("stops until it has gone" in said[1]) == (choice is IfKaiStarts.STOP)
        (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert line.getMessage() == said[1]


async def test_the_lease_of_a_shard_that_is_renewed_is_noticed() -> None:
    cluster = Cluster()
    async with beside(cluster) as made, anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.renew_lease)
        with anyio.fail_after(3 * EVERY_S):
            await made.noticed.wait()
        tasks.cancel_scope.cancel()


async def test_a_lease_that_a_kai_left_behind_is_no_kai() -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        await cluster.api.create(LEASES, lease("kai-0", SHARD), namespace=names.SYSTEM_NAMESPACE)
        await anyio.sleep(60.0)
        assert not made.is_there


async def test_what_looks_like_one_elsewhere_is_told_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        await cluster.start_kai("team")
        await anyio.sleep(2 * ELSEWHERE_EVERY * EVERY_S)
        assert not made.is_there
        (line,) = [each.getMessage() for each in caplog.records if "look like a KAI" in each.getMessage()]
        assert "pod team/one" in line


async def test_it_is_gone_when_it_was_not_seen_for_a_while() -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        await cluster.start_kai()
        await made.noticed.wait()
        with anyio.move_on_after(300.0) as waited:
            await made.until_gone()
        assert waited.cancelled_caught
        await cluster.api.delete(PODS, "one", namespace=names.SYSTEM_NAMESPACE, grace_s=0)
        with anyio.fail_after(4 * EVERY_S):
            await made.until_gone()


async def test_pods_of_all_namespaces_are_listed_seldom() -> None:
    cluster = Cluster()
    async with beside(cluster):
        await anyio.sleep(ELSEWHERE_EVERY * EVERY_S)
        listed = [entry for entry in cluster.server.audit if (entry.verb, entry.resource) == ("list", "pods")]
        assert 1 <= len([entry for entry in listed if not entry.namespace]) <= 2
        assert len([entry for entry in listed if entry.namespace]) >= ELSEWHERE_EVERY


async def test_looks_without_an_answer_are_no_sign_that_it_has_gone() -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        await cluster.start_kai()
        await made.noticed.wait()
        await cluster.api.delete(PODS, "one", namespace=names.SYSTEM_NAMESPACE, grace_s=0)
        while made.is_there:  # noqa: ASYNC110 - virtual time
            await anyio.sleep(1.0)
        cluster.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if call.verb == "list" else None)
        with anyio.move_on_after(100.0) as waited:
            await made.until_gone()
        assert waited.cancelled_caught


async def test_an_api_server_that_does_not_answer_tells_neither_of_a_kai_nor_of_its_end() -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        cluster.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if call.verb == "list" else None)
        await anyio.sleep(60.0)
        assert not made.is_there
        cluster.server.faults.clear()
        await cluster.start_kai()
        await made.noticed.wait()
        cluster.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if call.verb == "list" else None)
        await anyio.sleep(60.0)
        assert made.is_there
