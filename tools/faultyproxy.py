"""An HTTP proxy before an API server that lets things go wrong: late, refused, broken off, cut short, silent, expired.

It speaks plain HTTP to clients on loopback and TLS to the server, and passes on who they say they are. The faults are
those of simulator/apiserver/faults.py, dealt in an order from a seed. It refuses, delays, loses, cuts and ends: what a
fault says of later, of lies and of pages is left to the server in memory. For delays alone, with the clients' TLS
untouched, there is tools/lateproxy.py.
"""

from __future__ import annotations

import enum
import random
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol, Self
from urllib.parse import urlencode

import aiohttp
import anyio
from aiohttp import web

from simulator.apiserver.faults import NOTHING, End, Fault
from simulator.apiserver.transport import BrokenOff, come_through, injected_refusal


class Kind(enum.Enum):
    """Requests that different things happen to."""

    READ = "read"
    WATCH = "watch"
    WRITE = "write"


class Fate(Protocol):
    """Says what goes wrong, and learns when it did: a watch may end before its fault strikes."""

    def deal(self, kind: Kind) -> Fault:
        """What is to happen to a request that has just come."""
        ...

    def struck(self, fault: Fault) -> None:
        """It has happened."""
        ...


_REFUSALS: Final = (
    Fault(name="429", refuse_with=429, retry_after_s=1),
    Fault(name="500", refuse_with=500),
    Fault(name="503 in prose", refuse_with=503, in_prose=True),
    Fault(name="request lost", lost="request", breaks=True),
)


def catalogue(rng: random.Random) -> dict[Kind, list[Fault]]:
    """Everything that may go wrong, once of each kind, with details from ``rng``."""
    ends = [
        Fault(name=end.value, end=end, after_lines=rng.randrange(4), kept_permille=rng.randrange(1, 1000))
        for end in End
        if end is not End.NOT
    ]
    inside = Fault(name="answer breaks off", end=End.BREAKS_INSIDE, kept_permille=rng.randrange(1, 1000))
    answer_lost = Fault(name="answer lost", lost="answer", breaks=True)
    late = Fault(name="late", delay_s=rng.uniform(0.05, 0.2))
    gone = Fault(name="410", refuse_with=410)
    late_lines = Fault(name="late lines", line_delay_s=rng.uniform(0.005, 0.03))
    return {
        Kind.READ: [*_REFUSALS, gone, inside, answer_lost, late],
        Kind.WATCH: [*_REFUSALS, gone, *ends, late, late_lines],
        Kind.WRITE: [*_REFUSALS, answer_lost, late],
    }


#: How often nothing goes wrong.
_LUCK: Final = 0.2


class Deck:
    """Deals each fault until it has struck once, in seeded order, with good luck in between."""

    def __init__(self, faults: Mapping[Kind, Sequence[Fault]], rng: random.Random) -> None:
        self._rng = rng
        self._left = {kind: rng.sample(of_kind, len(of_kind)) for kind, of_kind in faults.items()}
        self._is_calm = False

    def deal(self, kind: Kind) -> Fault:
        """The next one of this kind; it goes to the bottom until it has struck."""
        left = self._left.get(kind, [])
        if self._is_calm or not left or self._rng.random() < _LUCK:
            return NOTHING
        left.append(left.pop(0))
        return left[-1]

    def struck(self, fault: Fault) -> None:
        """It has happened, and is not dealt again."""
        for left in self._left.values():
            if fault in left:
                left.remove(fault)
                return

    def left(self) -> list[str]:
        """Names of what has not happened yet."""
        return [f"{kind.value}: {fault.name}" for kind, left in self._left.items() for fault in left]

    def calm(self) -> None:
        """From now on nothing goes wrong; what was dealt may still strike."""
        self._is_calm = True


_LOOPBACK: Final = "127.0.0.1"
_PASSED_ON: Final = ("Authorization", "Content-Type", "Accept", "User-Agent")
_JSON: Final = {"Content-Type": "application/json"}
#: The longest line is an object; those of the API server end at some MiB.
_LONGEST_LINE: Final = 1 << 23


class FaultyProxy:
    """``async with FaultyProxy(server, ca_pem=..., fate=...) as proxy`` serves at ``proxy.url``.

    ``page``: lists that are asked for in pages are given in pages of this size, so that few objects make many pages.
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

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind = _kind(request)
        fault = self._fate.deal(kind)
        if fault.delay_s:
            await anyio.sleep(fault.delay_s)
            self._fate.struck(fault)
        if fault.refuse_with:
            self._fate.struck(fault)
            refusal = injected_refusal(fault)
            return web.Response(status=refusal.status, body=refusal.body, headers=refusal.headers)
        if fault.lost == "request":
            self._fate.struck(fault)
            return _hang_up(request)
        try:
            return await self._pass_on(request, kind, fault)
        except (aiohttp.ClientError, ConnectionError):
            # The server is away, or the client has gone.
            return _hang_up(request)

    async def _pass_on(self, request: web.Request, kind: Kind, fault: Fault) -> web.StreamResponse:
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
                return await self._watch(request, answer, fault)
            return await self._whole(request, answer, fault)

    def _target(self, request: web.Request) -> str:
        query = dict(request.rel_url.query)
        if self._page and "limit" in query:
            query["limit"] = str(self._page)
        return f"{self._server}{request.rel_url.raw_path}?{urlencode(query)}"

    async def _whole(self, request: web.Request, answer: aiohttp.ClientResponse, fault: Fault) -> web.StreamResponse:
        body = await answer.read()
        if fault.lost == "answer":
            self._fate.struck(fault)
            return _hang_up(request)
        headers = {"Content-Type": answer.headers.get("Content-Type", ""), "Content-Length": str(len(body))}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        if fault.end is End.BREAKS_INSIDE and len(body) > 1:
            self._fate.struck(fault)
            await response.write(fault.cut(body))
            _hang_up(request)
            return response
        await response.write(body)
        return response

    async def _watch(self, request: web.Request, answer: aiohttp.ClientResponse, fault: Fault) -> web.StreamResponse:
        response = web.StreamResponse(headers=_JSON)
        await response.prepare(request)
        lines = (line.rstrip(b"\n") async for line in answer.content)
        try:
            async for line in come_through(lines, fault, lambda: self._fate.struck(fault)):
                await response.write(line + b"\n")
        except BrokenOff as broken:
            await response.write(broken.rest)
            if not broken.closes:
                _hang_up(request)
        return response


def _hang_up(request: web.Request) -> web.Response:
    """Break the connection; what is returned never arrives."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _kind(request: web.Request) -> Kind:
    if request.method != "GET":
        return Kind.WRITE
    return Kind.WATCH if request.query.get("watch") in {"true", "1"} else Kind.READ
