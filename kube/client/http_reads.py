"""A Transport that only reads, for commands that ask once and end: HTTP/1.1 over asyncio's streams.

Importing aiohttp takes more CPU time than all that such a command does. So GET alone is here: no writes, which have to
be punctual (kube/client/http.py), no watches and no proxies. Connections are kept for the requests that follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, urlsplit

import msgspec

from kube.client.config import Credentials
from kube.client.errors import Unreachable
from kube.client.transport import JSON, OBJECT_BYTES, Response, check_path, deadline, most_read, target, too_large

if TYPE_CHECKING:
    import ssl

_HTTPS: Final = "https"
_PORTS: Final[Mapping[str, int]] = {"http": 80, _HTTPS: 443}
_BROKEN: Final = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)
#: The longest head of an answer, and how much of a body is read ahead.
_READ_AHEAD_BYTES: Final = 1 << 20
#: How much of an answer without a length is read at a time.
_PIECE_BYTES: Final = 1 << 16
_WITHOUT_BODY: Final = frozenset({204, 304})
_IN_PATHS: Final = "/%:@!$&'()*+,;=~"


class _Connection(msgspec.Struct):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def abort(self) -> None:
        self.writer.transport.abort()


class ConnectionEnded(Exception):
    """Raised where a connection ended before the first byte of an answer."""


class HttpReads:
    """Reads from the API server that the credentials name. An async context manager; use it inside only.

    Raises ValueError for credentials with a proxy.
    """

    def __init__(self, credentials: Credentials, *, user_agent: str) -> None:
        if credentials.proxy:
            raise ValueError("requests through a proxy: use kube.client.http")
        self._credentials = credentials
        ours = (("User-Agent", user_agent), ("Accept-Encoding", "identity"))
        self._headers = (*ours, *credentials.headers)
        self._tls: ssl.SSLContext | None = None
        self._idle: list[_Connection] = []

    async def __aenter__(self) -> Self:
        """Read certificates. Raises OSError and ValueError for those that can't be used."""
        if self._credentials.server.startswith(f"{_HTTPS}:"):
            from kube.client.transport import tls_context  # noqa: PLC0415 - of TLS

            self._tls = tls_context(self._credentials)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cut connections, without waiting for the other side."""
        while self._idle:
            self._idle.pop().abort()

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
        """Send a GET and return its answer; see kube.client.transport.Transport. Raises ValueError for a write."""
        if method != "GET" or body is not None:
            raise ValueError(f"{method}: only GET is sent here; writes use kube.client.http")
        check_path(path)
        try:
            with deadline(timeout_s, f"{method} {path}"):
                return await self._get(path, query, accept, most_bytes)
        except _TooLong as error:
            raise too_large(method, path, most_bytes) from error
        except (*_BROKEN, ConnectionEnded) as error:
            raise Unreachable(f"{method} {path}: {error!s} ({type(error).__name__})") from error

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Refuse: a process that watches stays, and uses kube.client.http. Raises ValueError."""
        del query, accept, timeout_s
        raise ValueError(f"WATCH {path}: watches use kube.client.http")

    async def _get(self, path: str, query: Mapping[str, str], accept: str, most_bytes: int) -> Response:
        address = urlsplit(self._credentials.server.rstrip("/"))
        asked = quote(address.path, safe=_IN_PATHS) + target(path, query)
        host = ("Host", address.netloc.rpartition("@")[2])
        head = _head(asked, (host, ("Accept", accept), *self._headers, *await self._authorization()))
        while self._idle:
            try:
                return await self._exchange(self._idle.pop(), head, most_bytes)
            except ConnectionEnded:
                # The server closed it while it was idle. Nothing was answered, and a GET may be sent twice.
                continue
        return await self._exchange(await self._connect(), head, most_bytes)

    async def _authorization(self) -> tuple[tuple[str, str], ...]:
        given = self._credentials.authorization
        value = "" if given is None else await given()
        return (("Authorization", value),) if value else ()

    async def _connect(self) -> _Connection:
        address = urlsplit(self._credentials.server)
        if address.scheme not in _PORTS or not address.hostname:
            raise ValueError(f"{self._credentials.server}: not an http or https address")
        name = (self._credentials.tls_server_name or address.hostname) if self._tls is not None else None
        reader, writer = await asyncio.open_connection(
            address.hostname,
            address.port or _PORTS[address.scheme],
            ssl=self._tls,
            server_hostname=name,
            limit=_READ_AHEAD_BYTES,
            happy_eyeballs_delay=0.25,
        )
        return _Connection(reader, writer)

    async def _exchange(self, connection: _Connection, head: bytes, most_bytes: int) -> Response:
        is_kept = False
        try:
            connection.writer.write(head)
            answer, is_kept = await _answer(connection.reader, most_bytes)
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                connection.abort()
        return answer


def _head(asked: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Write a request. Raises ValueError for a header that would not end where it should."""
    for name, value in headers:
        if any(ord(char) < 0x20 and char != "\t" for char in value):
            raise ValueError(f"{name}: its value has a line break or another control character")
    lines = (f"GET {asked} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", "")
    return "\r\n".join(lines).encode()


async def _answer(reader: asyncio.StreamReader, most_bytes: int) -> tuple[Response, bool]:
    """Read an answer; also whether its connection can be used again. Raises ConnectionEnded, and what is _BROKEN."""
    version, status, headers = _parsed(await _begun(reader))
    while 100 <= status < 200:
        version, status, headers = _parsed(await _begun(reader))
    most = most_read(status, most_bytes)
    body = _Body(most)
    try:
        is_ended = await _read(reader, status, headers, body)
    except _TooLong:
        if status < 300:
            raise
        return Response(status, headers, body.whole()), False
    is_kept = is_ended and version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return Response(status, headers, body.whole()), is_kept


class _TooLong(Exception):
    """Raised where an answer is longer than it may be."""


class _Body:
    """What was read of an answer, up to its limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: list[bytes] = []
        self._size = 0

    async def take(self, reader: asyncio.StreamReader, size: int) -> None:
        """Read a piece. Raises _TooLong."""
        fits = min(size, self._most - self._size)
        self._begun.append(await reader.readexactly(fits))
        self._size += fits
        if fits < size:
            raise _TooLong

    async def take_rest(self, reader: asyncio.StreamReader) -> None:
        """Read to the end of the connection. Raises _TooLong."""
        while piece := await reader.read(_PIECE_BYTES):
            self._begun.append(piece[: self._most - self._size])
            self._size += len(piece)
            if self._size > self._most:
                raise _TooLong

    def whole(self) -> bytes:
        """Return what was read."""
        return b"".join(self._begun)


async def _read(reader: asyncio.StreamReader, status: int, headers: Mapping[str, str], body: _Body) -> bool:
    """Read the body of an answer; return whether it ended before its connection. Raises _TooLong."""
    if status in _WITHOUT_BODY:
        return True
    if "transfer-encoding" in headers:
        await _chunks(reader, headers["transfer-encoding"], body)
        return True
    if "content-length" in headers:
        await body.take(reader, _size(headers["content-length"], 10))
        return True
    await body.take_rest(reader)
    return False


async def _begun(reader: asyncio.StreamReader) -> bytes:
    """Read the head of an answer."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except ConnectionError as error:
        raise ConnectionEnded(str(error)) from error
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        raise ConnectionEnded("the server closed the connection") from error


def _parsed(head: bytes) -> tuple[str, int, dict[str, str]]:
    """Version, status, and headers by their lower-case names. Raises ValueError for what is not HTTP."""
    first, *rest = head.decode("latin-1").split("\r\n")[:-2]
    version, _, status = first.partition(" ")
    if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
        raise ValueError(f"the server does not answer in HTTP/1: {first[:40]!r}")
    pairs = (each.partition(":") for each in rest)
    return version, int(status[:3]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _chunks(reader: asyncio.StreamReader, encoding: str, body: _Body) -> None:
    if encoding.lower() != "chunked":
        raise ValueError(f"the server answers in transfer encoding {encoding[:40]!r}; allowed is chunked")
    while size := _size((await _line(reader)).partition(";")[0], 16):
        await body.take(reader, size)
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk of the answer is longer than its length says")
    while await _line(reader):
        # Trailers.
        pass


async def _line(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n"))[:-2].decode("latin-1")


def _size(text: str, base: int) -> int:
    size = int(text.strip(), base)
    if size < 0:
        raise ValueError(f"the answer has a length of {size}")
    return size
