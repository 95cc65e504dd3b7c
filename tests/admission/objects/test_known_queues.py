"""Reading the other queues: all of them, in time, and one list at a time."""

from __future__ import annotations

import asyncio
import random

import anyio
import pytest

from admission.objects.review import READ_WITHIN_S, KnownQueues
from kube.client.api import Api
from kube.client.resources import QUEUES
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.admission.objects.queues import raw
from tests.values import there

VIRTUAL_TIME = True


class Site:
    """An API server, and how often its queues were listed."""

    def __init__(self) -> None:
        self.server = MemoryApiServer(clock=VirtualClock(asyncio.get_running_loop()), rng=random.Random(1))
        self.api = Api(self.server.transport(), retry=Retry(random.Random(2)))
        self.lists = 0
        self.fault: Fault | None = None
        self.server.faults.on_request.append(self._seen)

    def _seen(self, call: Call) -> Fault | None:
        if (call.verb, call.kind.plural) != ("list", "queues"):
            return None
        self.lists += 1
        return self.fault


async def test_all_queues_are_read_others() -> None:
    site = Site()
    for number in range(600):
        await site.api.create(QUEUES, raw(f"q{number}", "team"))
    found = there(await KnownQueues(site.api)())
    assert len(found) == 600
    assert len(found.below("team")) == 600


@pytest.mark.parametrize("fault", [Fault(refuse_with=403), Fault(delay_s=READ_WITHIN_S + 0.1)], ids=["403", "late"])
async def test_queues_that_cannot_be_read_in_time_are_not_known(fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.fault = fault
    began = anyio.current_time()
    assert await KnownQueues(site.api)() is None
    assert anyio.current_time() - began <= READ_WITHIN_S
    assert "a Queue is reviewed without the others" in caplog.text
    site.fault = None
    assert await KnownQueues(site.api)() is not None


async def test_a_list_that_begins_later_serves_all_that_wait() -> None:
    site = Site()
    site.fault = Fault(delay_s=0.5)
    known = KnownQueues(site.api)
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(known)
    # All 50 came before the first list began.
    assert site.lists == 1
    await known()
    assert site.lists == 2


async def test_a_list_that_began_before_is_not_taken() -> None:
    site = Site()
    site.fault = Fault(delay_s=0.5)
    known, late = KnownQueues(site.api), []

    async def ask_late() -> None:
        await anyio.sleep(0.25)
        await site.api.create(QUEUES, raw("new"))
        late.append(await known())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(known)
        tasks.start_soon(ask_late)
    assert late[0] is not None
    assert late[0].find("new")


async def test_a_caller_that_gives_up_does_not_spoil_the_next_list() -> None:
    site = Site()
    await site.api.create(QUEUES, raw("a"))
    site.fault = Fault(delay_s=0.5)
    known = KnownQueues(site.api)
    with anyio.move_on_after(0.1):
        await known()
    found = there(await known())
    assert found.find("a")
