"""One client's connection to the in-memory server: Transport of kube/client, and the place where faults strike.

Refusals become HTTP answers here, and a fault decides which of a watch's lines reach the client.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import anyio.lowlevel
import msgspec

from kube.client.errors import Timeout, Unreachable
from kube.client.transport import JSON, LINE_BYTES, OBJECT_BYTES, Response, check_path, deadline, too_large, whole
from simulator.apiserver.calls import Call, NoSuchGroup, Refusal
from simulator.apiserver.faults import End, Fault, Faults
from simulator.apiserver.get import WatchStream, expired_line

#: An open watch, and its lines as they reach the client.
_Watch = tuple[WatchStream, AsyncIterator[bytes]]


class Answering(Protocol):
    """What a client reaches: the server (simulator/apiserver/server.py)."""

    @property
    def faults(self) -> Faults:
        """What strikes requests on their way."""

    def log_write(self, method: str, path: str, body: bytes | None, user: str) -> None:
        """Record that a write came in."""

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        user: str,
        groups: tuple[str, ...],
    ) -> Call:
        """Return what a request asks for. Raises Refusal."""

    def answer_later(self, call: Call, delay_s: float) -> None:
        """Carry out a call for which nobody waits."""

    async def answer(self, call: Call) -> Response:
        """Carry out a call and return its answer."""

    def date(self) -> str:
        """Return the time as answers carry it."""

    def open_watch(self, call: Call) -> WatchStream:
        """Open a watch. Raises Refusal."""


class MemoryTransport:
    """Carries requests of one client.

    Yields to the loop before and after every request, so that requests of several clients interleave as on a network.
    """

    def __init__(self, server: Answering, *, user: str, groups: tuple[str, ...]) -> None:
        self._server = server
        self._user = user
        self._groups = groups
        self._dead = False
        #: While it is cut off: set when it is mended.
        self._mended: anyio.Event | None = None
        self._streams: dict[WatchStream, None] = {}

    def kill(self) -> None:
        """Go dark: no request or watch of this client, pending or later, is ever answered or fails.

        What has not reached the server yet never will. Its callers hang until they are cancelled; a crash in a
        simulation drops them.
        """
        self._dead = True
        for stream in self._streams:
            stream.close()

    def cut(self) -> None:
        """Part this client from the server: what either says is held back until ``mend``, as TCP does it.

        Requests whose callers give up meanwhile never arrive.
        """
        if self._mended is None:
            self._mended = anyio.Event()

    def mend(self) -> None:
        """Let through what was held back, and everything from now on."""
        if self._mended is not None:
            self._mended.set()
            self._mended = None

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
        """Send one request. Raises kube.client.errors.Timeout, and Unreachable where a fault breaks the connection.

        Objects are answered whole, also where metadata is accepted: who asks for that reads nothing else.
        """
        del accept
        check_path(path)
        try:
            with deadline(timeout_s, f"{method} {path}"):
                response = await self._exchange(method, path, query=query, body=body, content_type=content_type)
        except Timeout:
            await self._hang_if_dead()
            raise
        await self._hang_if_dead()
        return whole(method, path, response, most_bytes)

    async def _exchange(
        self, method: str, path: str, *, query: Mapping[str, str], body: bytes | None, content_type: str
    ) -> Response:
        call = self._call(method, path, query=query, body=body, content_type=content_type)
        fault = self._server.faults.of_request(call) if isinstance(call, Call) else Fault()
        await anyio.lowlevel.checkpoint()
        await self._outward(call, fault)
        if method != "GET":
            self._server.log_write(method, path, body, self._user)
        answer = refusal_response(call) if isinstance(call, Refusal) else await self._carried_out(call, fault)
        response = self._dated(answer)
        if fault.lost == "answer" or fault.end is not End.NOT:
            await self._unheard(fault)
        if fault.answer_delay_s:
            await anyio.sleep(fault.answer_delay_s)
        await anyio.lowlevel.checkpoint()
        await self._reach()
        return response

    def _dated(self, response: Response) -> Response:
        return Response(response.status, {**response.headers, "date": self._server.date()}, response.body)

    def _call(
        self, method: str, path: str, *, query: Mapping[str, str], body: bytes | None, content_type: str
    ) -> Call | Refusal:
        try:
            return self._server.call(
                method, path, query=query, body=body, content_type=content_type, user=self._user, groups=self._groups
            )
        except Refusal as refusal:
            return refusal

    async def _outward(self, call: Call | Refusal, fault: Fault) -> None:
        """Let the request travel, and get lost."""
        if fault.lost == "request":
            if fault.lands_after_s is not None and isinstance(call, Call):
                self._server.answer_later(call, fault.lands_after_s)
            await self._unheard(fault)
        if fault.delay_s:
            await anyio.sleep(fault.delay_s)
        await self._reach()
        if anyio.current_time() >= anyio.current_effective_deadline():
            # The client was stopped on the way. It looks at the time once more before its bytes leave
            # (kube/client/http.py).
            await anyio.sleep_forever()

    async def _reach(self) -> None:
        """Get to the other side."""
        while self._mended is not None:
            await self._mended.wait()
        await self._hang_if_dead()

    async def _unheard(self, fault: Fault) -> None:
        """Never answer: the sender waits for its time-out, or sees the connection break."""
        if (fault.breaks or fault.end is not End.NOT) and not self._dead:
            raise Unreachable("injected: connection reset")
        await anyio.sleep_forever()

    async def _carried_out(self, call: Call, fault: Fault) -> Response:
        if fault.carried_out and call.verb != "watch":
            await self._server.answer(call)
        if fault.refuse_with:
            return injected_refusal(fault)
        if fault.page and call.verb == "list" and "limit" in call.query:
            call = msgspec.structs.replace(call, query={**call.query, "limit": str(fault.page)})
        return await self._server.answer(call)

    async def _hang_if_dead(self) -> None:
        if self._dead:
            await anyio.sleep_forever()

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch. Raises kube.client.errors.Timeout, and Unreachable where a fault breaks the connection."""
        del accept
        check_path(path)
        opened = await self._opened(path, query, timeout_s)
        if isinstance(opened, Response):
            yield whole("WATCH", path, opened, OBJECT_BYTES), _nothing()
            return
        stream, lines = opened
        self._streams[stream] = None
        try:
            yield self._dated(Response(200, HEADERS, b"")), lines
        finally:
            del self._streams[stream]
            stream.close()

    async def _opened(self, path: str, query: Mapping[str, str], timeout_s: float) -> _Watch | Response:
        try:
            with deadline(timeout_s, f"GET {path}"):
                opened = await self._open(path, query)
        except Timeout:
            await self._hang_if_dead()
            raise
        await self._hang_if_dead()
        return opened

    async def _open(self, path: str, query: Mapping[str, str]) -> _Watch | Response:
        call = self._call("GET", path, query=query, body=None, content_type="")
        fault = self._server.faults.of_request(call) if isinstance(call, Call) else Fault()
        await anyio.lowlevel.checkpoint()
        await self._outward(call, fault)
        if isinstance(call, Refusal):
            return refusal_response(call)
        if call.verb != "watch" or fault.refuse_with:
            return await self._carried_out(call, fault)
        try:
            stream = self._server.open_watch(call)
        except Refusal as refusal:
            return refusal_response(refusal)
        lines = _Lines(stream, path, self._reach)
        if not fault.strikes_lines:
            return stream, lines
        return stream, come_through(lines, fault, lambda: self._server.faults.struck(call, fault))


class _Lines:
    """Lines of a watch as they reach the client."""

    def __init__(self, stream: WatchStream, path: str, reach: Callable[[], Awaitable[None]]) -> None:
        self._stream = stream
        self._path = path
        self._reach = reach

    def __aiter__(self) -> _Lines:
        """Iterate once; a stream can't be restarted."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next line, or tell how it ended. Raises TooLarge."""
        try:
            line = await self._stream.__anext__()
        finally:
            await self._reach()
        if len(line) > LINE_BYTES:
            raise too_large("WATCH", self._path, LINE_BYTES)
        return line


async def _nothing() -> AsyncIterator[bytes]:
    no_lines: tuple[bytes, ...] = ()
    for line in no_lines:
        yield line


class BrokenOff(Unreachable):
    """Raised where a watch ends inside a line, of which ``rest`` came through, or its connection breaks."""

    def __init__(self, rest: bytes, *, closes: bool) -> None:
        super().__init__("injected: the watch broke off")
        self.rest = rest
        #: The stream ends as if all were said; else the connection breaks.
        self.closes = closes


async def come_through(lines: AsyncIterable[bytes], fault: Fault, struck: Callable[[], None]) -> AsyncIterator[bytes]:
    """Yield the lines that reach the client; ``struck`` is called when the fault happens. Raises BrokenOff."""
    passed = 0
    async for line in lines:
        if fault.line_delay_s:
            await anyio.sleep(fault.line_delay_s)
            struck()
        if fault.end is End.NOT or passed != fault.after_lines:
            yield line
        else:
            struck()
            if (last := await _struck(line, fault)) is not None:
                yield last
            if fault.end is not End.GARBLES:
                return
        passed += 1


async def _struck(line: bytes, fault: Fault) -> bytes | None:
    """Return what comes in place of a line; None for nothing."""
    match fault.end:
        case End.BREAKS:
            raise BrokenOff(b"", closes=False)
        case End.BREAKS_INSIDE | End.CLOSES_INSIDE:
            raise BrokenOff(fault.cut(line), closes=fault.end is End.CLOSES_INSIDE)
        case End.GARBLES:
            return fault.cut(line)
        case End.EXPIRES:
            return expired_line()
        case End.FALLS_SILENT:
            await anyio.sleep_forever()
        case End.CLOSES | End.NOT:
            pass
    return None


HEADERS = {"content-type": "application/json"}

_PROSE = b"<html><body>no server is available to handle this request</body></html>"
_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def injected_refusal(fault: Fault) -> Response:
    """Return the answer of a fault that refuses a request."""
    if fault.in_prose:
        return Response(fault.refuse_with, {"content-type": "text/html"}, _PROSE)
    reason = _REASONS.get(fault.refuse_with, "")
    refusal = Refusal(fault.refuse_with, reason, f"injected: {reason or fault.refuse_with}")
    if fault.refuse_with == 429:
        refusal.retry_after_s = fault.retry_after_s
    return refusal_response(refusal)


def refusal_response(refusal: Refusal) -> Response:
    """Return a refusal as an HTTP answer."""
    if isinstance(refusal, NoSuchGroup):
        return Response(refusal.code, {"content-type": "text/plain; charset=utf-8"}, refusal.body())
    if refusal.retry_after_s is None:
        return Response(refusal.code, HEADERS, refusal.body())
    return Response(refusal.code, {**HEADERS, "retry-after": str(refusal.retry_after_s)}, refusal.body())
