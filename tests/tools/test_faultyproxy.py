"""What a client sees of each fault, through the product's own transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest
from aiohttp import web

from kube.client.config import plain
from kube.client.errors import ApiError, Unreachable
from kube.client.http import HttpTransport
from kube.client.transport import Response
from simulator.apiserver.faults import NOTHING, End, Fault
from simulator.apiserver.get import expired_line
from tools.faultyproxy import FaultyProxy, Kind

LINES = [b'{"line":%d}' % number for number in range(4)]
PATH = "/api/v1/pods"


@dataclass(slots=True)
class Server:
    """Echoes, streams LINES, and notes what it has heard."""

    heard: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.heard.append(request.method)
        if "watch" not in request.query:
            seen = [request.method, request.path_qs, request.headers["Authorization"], await request.text()]
            return web.json_response(seen, status=201)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in LINES:
            await response.write(line + b"\n")
        return response


@dataclass(slots=True)
class Once:
    """A fate with one fault, for the first request."""

    fault: Fault
    kinds: list[Kind] = field(default_factory=list)
    strikes: list[Fault] = field(default_factory=list)

    def deal(self, kind: Kind) -> Fault:
        self.kinds.append(kind)
        return self.fault if len(self.kinds) == 1 else NOTHING

    def struck(self, fault: Fault) -> None:
        self.strikes.append(fault)


@asynccontextmanager
async def proxied(fate: Once, *, page: int = 0) -> AsyncIterator[tuple[Server, HttpTransport]]:
    server = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with (
            FaultyProxy(url, fate=fate, page=page) as proxy,
            HttpTransport(plain(proxy.url, token="who")) as transport,
        ):
            yield server, transport
    finally:
        await runner.cleanup()


async def send(transport: HttpTransport, method: str = "GET", **query: str) -> Response:
    body = None if method == "GET" else b"{}"
    return await transport.request(method, PATH, query=query, body=body, timeout_s=5.0)


async def watch(transport: HttpTransport) -> tuple[list[bytes], ApiError | None]:
    """The lines that came, and how it ended."""
    lines: list[bytes] = []
    try:
        async with transport.stream(PATH, query={"watch": "true"}, timeout_s=5.0) as (head, stream):
            assert head.status == 200
            async for line in stream:
                lines.append(line)  # noqa: PERF401 - those count that came before it broke
    except Unreachable as error:
        return lines, error
    return lines, None


@pytest.mark.parametrize(("lost", "heard"), [("request", []), ("answer", ["PATCH"])])
async def test_what_is_lost_looks_the_same_and_is_not(lost: Literal["request", "answer"], heard: list[str]) -> None:
    async with proxied(Once(Fault(lost=lost))) as (server, transport):
        with pytest.raises(Unreachable):
            await send(transport, "PATCH")
        assert server.heard == heard
        assert (await send(transport, "PATCH")).status == 201


@pytest.mark.parametrize(
    ("end", "then", "is_broken"),
    [
        (End.BREAKS, [], True),
        (End.BREAKS_INSIDE, [], True),
        (End.CLOSES, [], False),
        (End.CLOSES_INSIDE, [], True),
        (End.GARBLES, [LINES[2][:5], LINES[3]], False),
        (End.EXPIRES, [expired_line()], False),
    ],
)
async def test_a_watch_ends_as_it_is_told_to(end: End, then: list[bytes], is_broken: bool) -> None:
    fate = Once(Fault(end=end, after_lines=2))
    async with proxied(fate) as (_, transport):
        lines, error = await watch(transport)
    assert (lines, error is not None) == ([*LINES[:2], *then], is_broken)
    assert len(fate.strikes) == 1


async def test_a_fault_that_had_no_time_to_strike_has_not() -> None:
    fate = Once(Fault(end=End.BREAKS, after_lines=4))
    async with proxied(fate) as (_, transport):
        assert await watch(transport) == (LINES, None)
    assert fate.strikes == []
