"""The binder's terms: what it does when it ceases to lead."""

from __future__ import annotations

import random

import anyio
import anyio.lowlevel
import pytest

from binder.app import Binder
from binder.watch.sinks import RequestSink
from kube.client.api import Api
from kube.client.fence import WriteFence
from kube.client.retry import Retry
from kube.events import EventRecorder
from tests.binder.cluster import BINDER, cluster

#: As long as a process may take to end when it has lost its lease (docs/replicas.md).
ENDS_WITHIN_S = 5.0


@pytest.mark.parametrize("turns", range(12))
async def test_a_term_ends_though_a_request_is_seen_so_many_turns_of_the_loop_after_it_was_lost(turns: int) -> None:
    async with cluster(started=False) as it, anyio.create_task_group() as tasks:
        fence = WriteFence()
        api = Api(it.server.transport(BINDER), retry=Retry(random.Random(3)), fence=fence)
        events = EventRecorder(api, clock=it.clock, controller=BINDER, instance="binder-0")
        binder = Binder(api, settings=it.settings, clock=it.clock, rng=random.Random(4), events=events)
        await tasks.start(binder.follow)
        term, over = anyio.CancelScope(), anyio.Event()

        async def lead() -> None:
            with term:
                await binder.lead()
            over.set()

        tasks.start_soon(lead)
        await anyio.sleep(1.0)
        it.server.faults.on_watch_line.append(lambda _call, _line: 3600.0)
        request = await it.hand_over(await it.pod(), "g")
        fence.close()
        term.cancel()
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        RequestSink(binder.view).upsert(request)
        with anyio.fail_after(ENDS_WITHIN_S):
            await over.wait()
        assert it.writes(BINDER) == []
        tasks.cancel_scope.cancel()


async def test_what_was_seen_between_two_terms_is_begun_in_the_next() -> None:
    async with cluster(started=False) as it, anyio.create_task_group() as tasks:
        api = Api(it.server.transport(BINDER), retry=Retry(random.Random(3)))
        events = EventRecorder(api, clock=it.clock, controller=BINDER, instance="binder-0")
        binder = Binder(api, settings=it.settings, clock=it.clock, rng=random.Random(4), events=events)
        await tasks.start(binder.follow)
        with anyio.move_on_after(1.0):
            await binder.lead()
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(10.0)
        assert not await it.is_bound()
        tasks.start_soon(binder.lead)
        await it.until(it.is_bound, limit_s=10.0)
        tasks.cancel_scope.cancel()
