"""``moorage top`` on a cluster in which nobody schedules. In virtual time."""

from __future__ import annotations

import asyncio
import random

import anyio
import pytest

from kube.client.api import Api
from kube.client.retry import Retry
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.conftest import AnyioBackend
from ui.commands.top import Top
from ui.leaders import Leaders
from ui.page.watch import Following, Publishing
from ui.top.screen import View


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize("looks", [True, False])
async def test_it_says_that_nobody_schedules_by_the_time_all_is_read(looks: bool) -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    publishing = Publishing("top", every_s=0.5)
    leaders = Leaders(clock) if looks else None
    following = Following(api, publishing.objects, rng=random.Random(1), leaders=leaders)
    async with anyio.create_task_group() as tasks:
        await tasks.start(following.run)
        await following.settled()
        drawn = "\n".join(line.plain for line in Top(publishing, following, View(100, 20), clock=clock).drawn().lines)
        assert ("no scheduler has worked here yet" in drawn) == looks
        tasks.cancel_scope.cancel()
