"""The page served on loopback, over an API server in memory."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import msgspec

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.retry import Retry
from kube.client.transport import Transport
from ui.leaders import Leaders
from ui.page import explanations
from ui.page.auth import Access, Open
from ui.page.explanations import Asks, PageExplains
from ui.page.server import Answering, Door
from ui.page.watch import Following, Publishing

HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Served(msgspec.Struct, frozen=True):
    """A page that is served; ``client`` asks it."""

    address: str
    client: aiohttp.ClientSession
    publishing: Publishing
    following: Following


@asynccontextmanager
async def served(
    transport: Transport,
    *,
    access: Access | None = None,
    hosts: Collection[str] | None = HOSTS,
    in_step: bool = True,
    drawn: bool = True,
    every_s: float = 0.02,
    namespaces: Sequence[str] = (),
    leaders: Leaders | None = None,
    asks: Asks | None = None,
    **how: Any,
) -> AsyncIterator[Served]:
    """Serve it; ``in_step`` false: nothing is read; ``drawn`` false: and nothing of what is read is drawn."""
    publishing = Publishing("epoch", every_s=every_s)
    api = Api(transport, retry=Retry(random.Random(0)))
    following = Following(api, publishing.objects, rng=random.Random(0), namespaces=namespaces, leaders=leaders)
    clock = SystemClock()
    explains = PageExplains(explanations.cluster(api, publishing.objects, following, clock), clock=clock, asks=asks)
    answering = Answering(
        publishing,
        following,
        access or Open(),
        source="a test",
        hosts=hosts,
        drawn=publishing.begun,
        **{"pulse_s": 0.2, "explains": explains, **how},
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = Door(listener)
        async with anyio.create_task_group() as tasks:
            await tasks.start(door.let_in, answering)
            if in_step:
                await tasks.start(following.run)
            if in_step and drawn:
                tasks.start_soon(publishing.run)
                await publishing.begun.wait()
            timeout = aiohttp.ClientTimeout(total=120)
            async with aiohttp.ClientSession(door.address, timeout=timeout) as client:
                yield Served(door.address.rstrip("/"), client, publishing, following)
            tasks.cancel_scope.cancel()
