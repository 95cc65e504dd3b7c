"""An HTTP proxy before an API server that lets things go wrong: late, refused, broken off, cut short, silent, expired.

It speaks plain HTTP to clients on loopback and TLS to the server, and passes on who they say they are. What goes wrong
is tools/mishaps.py's to say. For delays alone, with the clients' TLS untouched, there is tools/lateproxy.py.
"""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode

import aiohttp
import anyio
from aiohttp import web

from tools.mishaps import NOTHING, End, Fate, Kind, Mishap, expired_event, status

_LOOPBACK: Final = "127.0.0.1"
_PASSED_ON: Final = ("Authorization", "Content-Type", "Accept", "User-Agent")
_JSON: Final = {"Content-Type": "application/json"}
#: The longest line is an object; those of the API server end at some MiB.
_LONGEST_LINE: Final = 1 << 23


class FaultyProxy:
    """``async with FaultyProxy(server, ca_pem=..., fate=...) as proxy`` serves at ``proxy.url``.

    ``page``: lists that are asked for in pages are given in pages of so many, so that few objects make many pages.
    """

    def __init__(self, server: str, *, ca_pem: str = "", fate: Fate, page: int = 0) -> None:
        self.url = ""
        self._server = server
        self._tls = ssl.create_default_context(cadata=ca_pem) if ca_pem else None
        self._fate = fate
        self._page = page
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls if self._tls is not None else True)
        session = aiohttp.ClientSession(connector=connector, trust_env=False, timeout=aiohttp.ClientTimeout())
        self._session = await self._stack.enter_async_context(session)
        application = web.Application(client_max_size=_LONGEST_LINE)
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, _LOOPBACK, 0).start()
        self.url = f"http://{_LOOPBACK}:{runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind = _kind(request)
        mishap = self._fate.deal(kind)
        if mishap.delay_s:
            await anyio.sleep(mishap.delay_s)
            self._fate.struck(mishap)
        if mishap.refuse_with:
            self._fate.struck(mishap)
            return _refusal(mishap)
        if mishap.lost == "request":
            self._fate.struck(mishap)
            return _hang_up(request)
        try:
            return await self._pass_on(request, kind, mishap)
        except (aiohttp.ClientError, ConnectionError):
            # The server is away, or the client has gone.
            return _hang_up(request)

    async def _pass_on(self, request: web.Request, kind: Kind, mishap: Mishap) -> web.StreamResponse:
        body = await request.read()
        async with self._session.request(
            request.method,
            self._target(request),
            headers={name: request.headers[name] for name in _PASSED_ON if name in request.headers},
            data=body or None,
            allow_redirects=False,
            read_bufsize=_LONGEST_LINE,
        ) as answer:
            if kind is Kind.WATCH and answer.status == 200:
                return await self._watch(request, answer, mishap)
            return await self._whole(request, answer, mishap)

    def _target(self, request: web.Request) -> str:
        query = dict(request.rel_url.query)
        if self._page and "limit" in query:
            query["limit"] = str(self._page)
        return f"{self._server}{request.rel_url.raw_path}?{urlencode(query)}"

    async def _whole(self, request: web.Request, answer: aiohttp.ClientResponse, mishap: Mishap) -> web.StreamResponse:
        body = await answer.read()
        if mishap.lost == "answer":
            self._fate.struck(mishap)
            return _hang_up(request)
        headers = {"Content-Type": answer.headers.get("Content-Type", ""), "Content-Length": str(len(body))}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        if mishap.end is End.BREAKS_INSIDE and len(body) > 1:
            self._fate.struck(mishap)
            await response.write(mishap.cut(body))
            _hang_up(request)
            return response
        await response.write(body)
        return response

    async def _watch(self, request: web.Request, answer: aiohttp.ClientResponse, mishap: Mishap) -> web.StreamResponse:
        response = web.StreamResponse(headers=_JSON)
        await response.prepare(request)
        passed = 0
        async for line in answer.content:
            if mishap.line_delay_s:
                await anyio.sleep(mishap.line_delay_s)
                self._fate.struck(mishap)
            if mishap.end is not End.NOT and passed == mishap.after_lines:
                self._fate.struck(mishap)
                if await _strike(request, response, mishap, line):
                    return response
                mishap = NOTHING
            else:
                await response.write(line)
            passed += 1
        return response


async def _strike(request: web.Request, response: web.StreamResponse, mishap: Mishap, line: bytes) -> bool:
    """Let a watch end at this line; return whether it has."""
    match mishap.end:
        case End.BREAKS:
            _hang_up(request)
        case End.BREAKS_INSIDE:
            await response.write(mishap.cut(line))
            _hang_up(request)
        case End.CLOSES_INSIDE:
            await response.write(mishap.cut(line))
        case End.GARBLES:
            await response.write(mishap.cut(line) + b"\n")
            return False
        case End.EXPIRES:
            await response.write(expired_event())
        case End.FALLS_SILENT:
            await anyio.sleep_forever()
        case End.CLOSES | End.NOT:
            pass
    return True


def _hang_up(request: web.Request) -> web.Response:
    """Break the connection; what is returned never arrives."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _kind(request: web.Request) -> Kind:
    if request.method != "GET":
        return Kind.WRITE
    return Kind.WATCH if request.query.get("watch") in {"true", "1"} else Kind.READ


def _refusal(mishap: Mishap) -> web.Response:
    retry = {"Retry-After": str(mishap.retry_after_s)} if mishap.retry_after_s else {}
    if mishap.in_prose:
        page = b"<html><body>no server is available to handle this request</body></html>"
        return web.Response(status=mishap.refuse_with, body=page, headers={"Content-Type": "text/html", **retry})
    return web.Response(status=mishap.refuse_with, body=status(mishap.refuse_with), headers={**_JSON, **retry})
