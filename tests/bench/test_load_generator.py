"""The one who asks webhooks for the bench, against a server that answers as told."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from aiohttp import web

from admission.certificates import tls
from admission.certificates.pair import serving_certificate
from bench.load_generator import Order, carried_out
from bench.reviews import Recorded
from kube.client.clock import SystemClock

YES, NO = b'{"response":{"allowed":true}}', b'{"response":{"allowed":false}}'
REVIEW = Recorded("/mutate--v1-pod?timeout=5s", {"Host": "recorder", "Content-Length": "2", "X-Told": "so"}, b"{}")

Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[int, str]]:
    """Port and CA."""
    made = serving_certificate(addresses=["127.0.0.1"], now_ns=SystemClock().now_ns())
    context: ssl.SSLContext = tls.server_context()
    tls.load(context, made.certificate, made.key)
    app = web.Application()
    app.router.add_post("/mutate--v1-pod", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1], made.ca.decode()
    finally:
        await runner.cleanup()


def order(port: int, ca: str, *, per_s: float, for_s: float) -> Order:
    return Order(port=port, ca=ca, pid=os.getpid(), core=0, per_s=per_s, for_s=for_s, reviews=[REVIEW])


async def test_as_many_are_asked_as_are_ordered_and_connections_are_kept() -> None:
    seen: list[tuple[str, str, bytes]] = []
    connections = set()

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers["X-Told"], await request.read()))
        connections.add(request.transport)
        return web.Response(body=YES)

    async with serving(answer) as (port, ca):
        told = await carried_out(order(port, ca, per_s=100, for_s=0.2))
    assert (told.failed, told.why) == (0, "")
    assert len(told.waits_s) == len(told.late_s) == 20
    assert min(told.late_s) >= 0
    # And one to warm up.
    assert seen == [(REVIEW.path, "so", b"{}")] * 21
    assert len(connections) <= told.connections + 1


@pytest.mark.parametrize(("status", "body"), [(200, NO), (400, YES), (500, b"")])
async def test_what_is_no_yes_has_failed(status: int, body: bytes) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    async with serving(answer) as (port, ca):
        told = await carried_out(order(port, ca, per_s=100, for_s=0.05))
    assert told.failed >= 5
    assert str(status) in told.why


async def test_a_review_counts_from_when_it_was_due_not_from_when_it_was_sent() -> None:
    """All answers are held back until the last review is there: the first waits for all of them."""
    rest = asyncio.Event()
    count = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal count
        count += 1
        if count == 1 + 10:
            rest.set()
        if count > 1:
            await rest.wait()
        return web.Response(body=YES)

    async with serving(answer) as (port, ca):
        told = await carried_out(order(port, ca, per_s=20, for_s=0.5))
    assert told.failed == 0
    assert max(told.waits_s) >= 9 / 20
    assert told.connections >= 9, "one more whenever all are busy"


async def test_flat_out_asks_until_the_time_is_over() -> None:
    async def answer(_: web.Request) -> web.Response:
        await anyio.lowlevel.checkpoint()
        return web.Response(body=YES)

    async with serving(answer) as (port, ca):
        told = await carried_out(order(port, ca, per_s=0, for_s=0.2))
    assert told.failed == 0
    assert told.took_s >= 0.2
    assert len(told.waits_s) >= 2
