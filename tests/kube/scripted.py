"""A Transport whose answers are written down beforehand, and which remembers what it was asked."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from kube.client.api import Api
from kube.client.retry import Retry
from kube.client.transport import JSON, OBJECT_BYTES, Response

HEAD = Response(200, {}, b"")


@dataclass(slots=True)
class Request:
    """What was asked, and when on the event loop's clock."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    content_type: str
    timeout_s: float
    at: float


@dataclass(slots=True)
class Watch:
    """The answer to one watch: its lines, each after a pause or at once, as what is buffered comes, and how it ends.

    ``end`` is an error to raise after the lines, "eof", or "silence".
    """

    lines: list[bytes] = field(default_factory=list)
    pauses_s: float = 0.0
    end: Exception | str = "silence"
    head: Response = HEAD


Answer = Response | Exception | Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class ScriptedTransport:
    """Gives ``answers`` and ``watches`` in order; what is asked beyond them is a fault of the test."""

    answers: deque[Answer] = field(default_factory=deque)
    watches: deque[Watch] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)
    #: The most bytes that each request would read.
    limits: list[int] = field(default_factory=list)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        self.limits.append(most_bytes)
        decoded = None if body is None else msgspec.json.decode(body)
        request = Request(method, path, query, decoded, content_type, timeout_s, anyio.current_time())
        self.requests.append(request)
        await anyio.lowlevel.checkpoint()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Response) else await answer(request)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        self.requests.append(Request("WATCH", path, query, None, "", timeout_s, anyio.current_time()))
        watch = self.watches.popleft()
        yield watch.head, _lines(watch)

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Method and path of each request."""
        return [(request.method, request.path) for request in self.requests]

    @property
    def times(self) -> list[float]:
        return [request.at for request in self.requests]


async def _lines(watch: Watch) -> AsyncIterator[bytes]:
    for line in watch.lines:
        if watch.pauses_s:
            await anyio.sleep(watch.pauses_s)
        yield line
    if isinstance(watch.end, Exception):
        raise watch.end
    if watch.end == "silence":
        await anyio.sleep_forever()


async def hang(_request: Request) -> Response:
    """Answer of a server that accepts and never answers."""
    await anyio.sleep_forever()
    raise AssertionError


def ok(body: object, *, status: int = 200) -> Response:
    return Response(status, {}, msgspec.json.encode(body))


def refusal(code: int, reason: str = "", *, headers: Mapping[str, str] | None = None, **details: Any) -> Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}
    return Response(code, headers or {}, msgspec.json.encode({**body, "details": details} if details else body))


def api_over(transport: ScriptedTransport, **settings: Any) -> Api:
    return Api(transport, retry=Retry(random.Random(7)), **settings)
