"""Asking a Prometheus: what is sent, and that nothing it does holds the scheduler up. Over loopback, in real time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from scheduler.background.prometheus import MOST_BYTES, NoAnswer, Prometheus, asking
from scheduler.settings import UseSource
from tests.conftest import AnyioBackend
from tests.kube.client.test_http import Handler, serving

NOW_S = 1_790_000_000


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


@asynccontextmanager
async def asked(handler: Handler, *, under: str = "", timeout_s: float = 5.0) -> AsyncIterator[Prometheus]:
    async with (
        serving(handler) as url,
        asking(UseSource(url=f"{url}{under}", timeout_s=timeout_s)) as prometheus,
    ):
        yield prometheus


def answer(text: str, status: int = 200, **headers: str) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=text.encode(), headers=headers)

    return handler


@pytest.mark.parametrize("under", ["", "/", "/behind/a/proxy", "/behind/a/proxy/"])
async def test_a_query_is_sent_as_a_form_with_the_time_and_an_end(under: str) -> None:
    seen = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.path, dict(await request.post())))
        return web.Response(text="{}")

    async with asked(handler, under=under, timeout_s=2.5) as prometheus:
        assert await prometheus.ask('sum({a="b"})[1h:1m]', NOW_S) == b"{}"
    form = {"query": 'sum({a="b"})[1h:1m]', "time": str(NOW_S), "timeout": "2.5s"}
    assert seen == [("POST", f"{under.rstrip('/')}/api/v1/query", form)]


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (answer(json.dumps({"status": "error", "error": "too many\nsamples"}), 422), "HTTP 422 too many samples"),
        (answer("<html>", 503), "HTTP 503 Service Unavailable"),
        (answer('"text"', 401), "HTTP 401 Unauthorized"),
        (answer("\xff", 500), "HTTP 500 Internal Server Error"),
        (answer("", 302, Location="http://127.0.0.1:1/"), "HTTP 302 Found"),
    ],
)
async def test_a_refusal_is_told_in_one_line(handler: Handler, why: str) -> None:
    async with asked(handler) as prometheus:
        with pytest.raises(NoAnswer) as refused:
            await prometheus.ask("up", NOW_S)
    assert str(refused.value) == why


async def test_an_answer_without_end_is_left() -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b" " * (1 << 20))
            sent += 1
        return response

    async with asked(handler, timeout_s=60.0) as prometheus:
        with pytest.raises(NoAnswer, match="larger than 16 MiB"):
            await prometheus.ask("up", NOW_S)
    assert sent < 200 * MOST_BYTES >> 20


async def test_a_long_error_is_not_read_to_its_end() -> None:
    async with asked(answer("x" * (64 << 20), 500)) as prometheus:
        with pytest.raises(NoAnswer, match="HTTP 500"):
            await prometheus.ask("up", NOW_S)


@pytest.mark.parametrize("begins", [False, True])
async def test_who_does_not_answer_in_time_is_not_waited_for(*, begins: bool) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if begins:
            await response.prepare(request)
            await response.write(b"{")
        await asyncio.sleep(30)
        return response

    async with asked(handler, timeout_s=0.05) as prometheus:
        with pytest.raises(NoAnswer, match=r"no answer within 0\.05 s"):
            await prometheus.ask("up", NOW_S)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1", "http://host.invalid"])
async def test_who_is_not_there_gives_no_answer(url: str) -> None:
    async with asking(UseSource(url=url, timeout_s=5.0)) as prometheus:
        with pytest.raises(NoAnswer):
            await prometheus.ask("up", NOW_S)


async def test_a_connection_that_breaks_gives_no_answer_and_the_next_one_does() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls == 1:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(text="{}")

    async with asked(handler) as prometheus:
        with pytest.raises(NoAnswer):
            await prometheus.ask("up", NOW_S)
        assert await prometheus.ask("up", NOW_S) == b"{}"
