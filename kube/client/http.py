"""The Transport over HTTP: an aiohttp session of our own, one connection per call in flight, TLS as the cluster wants.

``trust_env=False`` matters: with it on, aiohttp asks ~/.netrc and the proxy environment in threads on every request
(measured: 392 us of CPU per request against 108). Compressed answers are not asked for: between a scheduler
and its API server the wire is cheaper than the processor.

A request whose deadline has passed must not reach the server any more (kube/client/fence.py says why). So the deadline
is looked at once more right before the bytes leave, and a connection that is given up is reset, which makes the kernel
forget what it has not delivered yet instead of sending it when the network is back.
"""

from __future__ import annotations

import asyncio
import copy
import math
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import anyio
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from typing_extensions import override
from yarl import URL

from kube.client.config import Authorization, Credentials
from kube.client.errors import Unreachable
from kube.client.transport import (
    JSON,
    LINE_BYTES,
    OBJECT_BYTES,
    Response,
    deadline,
    most_read,
    target,
    tls_context,
    too_large,
)

#: Enough for the calls in flight of one component; each watch holds one for as long as it lasts.
CONNECTIONS: Final = 128
#: How much of a watch is read ahead before the server is slowed down. Lines may be longer (LINE_BYTES).
READ_AHEAD_BYTES: Final = 1 << 20
_BROKEN: Final = (aiohttp.ClientError, OSError)
#: Bytes that the other side has not acknowledged for so long are given up, and the connection with them (Linux).
UNACKNOWLEDGED_MS: Final = 10_000
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class HttpTransport:
    """Carries requests to the API server that the credentials name. An async context manager; use it inside only."""

    def __init__(
        self, credentials: Credentials, *, connections: int = CONNECTIONS, user_agent: str = "moorage"
    ) -> None:
        self._credentials = credentials
        self._connections = connections
        ours = (("User-Agent", user_agent), ("Accept-Encoding", "identity"))
        self._headers = [*ours, *credentials.headers]
        self._server = credentials.server.rstrip("/")
        self._opened: aiohttp.ClientSession | None = None
        # Given to aiohttp only when there is something to give, so that plain HTTP stays plain.
        self._connect: dict[str, Any] = {}
        if credentials.proxy:
            self._connect["proxy"] = credentials.proxy
        if credentials.tls_server_name:
            self._connect["server_hostname"] = credentials.tls_server_name

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            limit=self._connections, ssl=tls_context(self._credentials), socket_factory=_forgetful_socket
        )
        self._opened = aiohttp.ClientSession(
            connector=connector,
            request_class=_Punctual,
            trust_env=False,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Deadlines are ours: aiohttp would round those above five seconds up to whole seconds.
            timeout=aiohttp.ClientTimeout(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            # Closes sockets without waiting for the other side.
            await self._opened.close()
            self._opened = None

    def under(self, authorization: Authorization) -> HttpTransport:
        """Return a transport over the same connections under another identity, usable as long as this one is open.

        Raises ValueError where this one shows a certificate: that would go on saying who we are.
        """
        if self._credentials.has_certificate:
            raise ValueError("a connection with a client certificate has one identity")
        other = copy.copy(self)
        fresh = msgspec.structs.replace(self._credentials, authorization=authorization)
        other._credentials = fresh  # noqa: SLF001 - of this very class
        return other

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
        """Send one request and return its answer; see kube.client.transport.Transport."""
        url = self._url(path, query)
        try:
            with deadline(timeout_s, f"{method} {path}"):
                headers = await self._headers_for(accept)
                if body is not None:
                    headers["Content-Type"] = content_type
                async with self._session.request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    **self._connect,
                ) as reply:
                    return _response(reply, await _body(reply, method, path, most_bytes))
        except _BROKEN as error:
            raise _unreachable(method, path, error) from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch; see kube.client.transport.Transport.

        Lines come without their newline.
        """
        url = self._url(path, query)
        try:
            with deadline(timeout_s, f"WATCH {path}"):
                reply = await self._session.get(
                    url,
                    headers=await self._headers_for(accept),
                    allow_redirects=False,
                    read_bufsize=READ_AHEAD_BYTES,
                    **self._connect,
                )
        except _BROKEN as error:
            raise _unreachable("WATCH", path, error) from error
        # Leaving the reply's own context releases the connection.
        async with reply:
            if reply.status == 200:
                try:
                    async with aclosing(_lines(reply, path)) as lines:
                        yield _response(reply, b""), lines
                finally:
                    _hang_up(reply)
            else:
                yield await self._whole(reply, path, timeout_s), _no_lines()

    async def _whole(self, reply: aiohttp.ClientResponse, path: str, timeout_s: float) -> Response:
        try:
            with deadline(timeout_s, f"WATCH {path}"):
                return _response(reply, await _body(reply, "WATCH", path, OBJECT_BYTES))
        except _BROKEN as error:
            raise _unreachable("WATCH", path, error) from error

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        # Quoted already: yarl would resolve `..`, and quote or unquote what it takes for a slip.
        return URL(self._server + target(path, query), encoded=True)

    async def _headers_for(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept}
        if self._credentials.authorization is not None and (value := await self._credentials.authorization()):
            headers["Authorization"] = value
        return headers

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            raise RuntimeError("HttpTransport is used outside of its context")
        return self._opened


class _Punctual(aiohttp.ClientRequest):
    """Does not send its bytes when the deadline around the call has passed: the loop was blocked, or stopped."""

    _send_before = math.inf

    @override
    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        self._send_before = anyio.current_effective_deadline()
        return await super().send(conn)

    @override
    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        # Headers leave together with the body, which every write has.
        if asyncio.get_running_loop().time() < self._send_before:
            await super().write_bytes(writer, conn, content_length)
        elif conn.transport is not None:
            conn.transport.abort()


def _forgetful_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that delivers nothing any more once it is closed, and gives up what is not acknowledged in time."""
    family, kind, protocol, *_ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
    return made


def _response(reply: aiohttp.ClientResponse, body: bytes) -> Response:
    return Response(reply.status, {name.lower(): value for name, value in reply.headers.items()}, body)


async def _body(reply: aiohttp.ClientResponse, method: str, path: str, most_bytes: int) -> bytes:
    """Read a body up to its limit; what comes after it is not waited for. Raises TooLarge."""
    most = most_read(reply.status, most_bytes)
    said = None if "Transfer-Encoding" in reply.headers else reply.content_length
    if said is not None and said <= most:
        return await reply.read()
    begun: list[bytes] = []
    size = 0
    async for chunk in reply.content.iter_any():
        begun.append(chunk)
        size += len(chunk)
        if size > most:
            _hang_up(reply)
            if reply.status < 300:
                raise too_large(method, path, most)
            break
    return b"".join(begun)[:most]


def _hang_up(reply: aiohttp.ClientResponse) -> None:
    """Cut a connection whose answer was left early: TLS would wait for the other side's goodbye, perhaps long."""
    if reply.connection is not None and reply.connection.transport is not None:
        reply.connection.transport.abort()


async def _lines(reply: aiohttp.ClientResponse, path: str) -> AsyncGenerator[bytes, None]:
    """Cut a body at its newlines. aiohttp's own readline refuses lines above its buffer: a watch would be stuck."""
    begun: list[bytes] = []
    size = 0
    try:
        async for chunk in reply.content.iter_any():
            *ended, rest = chunk.split(b"\n")
            if size + len(ended[0] if ended else rest) > LINE_BYTES:
                raise too_large("WATCH", path, LINE_BYTES)
            size = len(rest) if ended else size + len(rest)
            for piece in ended:
                line = b"".join((*begun, piece)) if begun else piece
                begun.clear()
                if line:
                    yield line
            if rest:
                begun.append(rest)
    except _BROKEN as error:
        raise _unreachable("WATCH", path, error) from error
    if begun:
        raise Unreachable(f"WATCH {path}: the stream ended inside a line")


async def _no_lines() -> AsyncIterator[bytes]:
    no_lines: tuple[bytes, ...] = ()
    for line in no_lines:
        yield line


def _unreachable(method: str, path: str, error: BaseException) -> Unreachable:
    return Unreachable(f"{method} {path}: {error!s} ({type(error).__name__})")
