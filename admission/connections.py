"""How connections come in: a few handshakes at a time, so that the connections that are there are served first.

asyncio's own servers accept a whole backlog each time they look, 128 connections, and begin a TLS handshake for each.
A handshake costs what four reviews cost. So a stall in which the API server opened a few hundred connections kept
itself going: each turn of the event loop took a second, a review on a new connection takes five turns, and a client
that has given up after its 5 s closes the connection and opens another. The API server sends a review on whichever
connection is free first (net/http's Transport does, in client-go), so it loses nothing when new ones come slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Protocol

import anyio
import msgspec

log = logging.getLogger(__name__)

#: asyncio gives each TLS connection a read buffer of this size when it opens: 256 KiB by default, and this attribute is
#: the only way to change that, for the whole process. A TLS record has 16 KiB.
_BUFFER_BYTES: Final = 32 * 1024
#: A connection that can't be accepted stays in the backlog: for want of descriptors or memory, which others free.
_AGAIN_S: Final = 1.0
#: asyncio tells nobody when one of many connections ends, so it is looked at.
_FULL_AGAIN_S: Final = 0.01


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What new connections may take. A handshake costs 0.5 to 1 ms, so they get half a core at most."""

    #: One handshake may begin in this time, and ``at_once`` of them after a pause.
    every_s: float = 0.002
    at_once: int = 8
    #: How long the client may take for its handshake. client-go gives up after as long.
    handshake_s: float = 10.0
    #: How long it may take to send a review that it has begun: the review comes from the API server's memory.
    body_s: float = 10.0
    #: The most connections that wait in the kernel: a quarter of a second of handshakes.
    backlog: int = 128
    #: An API server works at 600 requests at once at most, by its defaults, and sends one on a connection. Any program
    #: that reaches us can open as many: beyond this number the oldest connections make room for new ones.
    connections: int = 2000


class Serving(Protocol):
    """Serves what came in, as aiohttp's ``web.Server`` does."""

    def __call__(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        ...

    @property
    def connections(self) -> Sequence[Hashable]:
        """Those that are open, the first that came first."""
        ...


class Pace:
    """When the next handshake may begin: one each ``every_s``, and ``at_once`` of them that were not begun earlier."""

    def __init__(self, limits: Limits) -> None:
        self._every_s = limits.every_s
        self._saved_s = limits.every_s * (limits.at_once - 1)
        self._due_s = float("-inf")

    def begun(self, now_s: float) -> float:
        """Count one that begins now; return when the next may."""
        self._due_s = max(self._due_s, now_s - self._saved_s) + self._every_s
        return self._due_s


class Entrance:
    """Accepts connections at one listening socket, for as long as it runs.

    ``context`` is asked at each handshake; where it says None, connections are taken as they are, without TLS.
    ``is_asking`` says of which connection a request is being read: it is put out after the others.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext | None],
        server: Serving,
        *,
        limits: Limits,
        is_asking: Callable[[object], bool] = lambda _: False,
    ) -> None:
        self._listening = listening
        self._context = context
        self._server = server
        self._limits = limits
        self._is_asking = is_asking
        self._shaking = 0
        #: Of the connections that are there, and of some that have gone: a protocol forgets its own transport when it
        #: says goodbye, which a peer may leave unanswered.
        self._transports: dict[Hashable, asyncio.WriteTransport] = {}

    async def run(self) -> None:
        """Accept until cancelled. Handshakes under way are broken off then, connections are left as they are."""
        sslproto.SSLProtocol.max_size = _BUFFER_BYTES
        self._listening.setblocking(False)
        pace = Pace(self._limits)
        async with anyio.create_task_group() as tasks:
            while True:
                connection = await self._next()
                self._shaking += 1
                tasks.start_soon(self._shake, connection)
                due_s = pace.begun(anyio.current_time())
                if due_s > anyio.current_time():
                    await anyio.sleep_until(due_s)

    async def _next(self) -> socket.socket:
        """Wait for one whose client is still there: who gave up while it waited is not worth a handshake."""
        while True:
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(self._listening)
            except OSError as error:
                log.warning("no connection can be accepted: %s", error)
                await anyio.sleep(_AGAIN_S)
                continue
            try:
                await self._make_room()
            except BaseException:
                connection.close()
                raise
            if not _has_gone(connection):
                return connection
            connection.close()

    async def _make_room(self) -> None:
        """Where there are as many as may be, end those that ask nothing, or else have asked for longest.

        If none were closed, a client that opens this number and stays silent would keep the API server out. The API
        server asks again on another connection when an idle one has ended. Handshakes that don't go on end after a
        time-out, and put out no more than half of those that are there.
        """
        while (too_many := len(self._server.connections) + self._shaking - self._limits.connections + 1) > 0:
            there = sorted(self._server.connections, key=self._is_asking)
            for connection in there[: min(too_many, len(there) - self._limits.connections // 2)]:
                if (transport := self._transports.pop(connection, None)) is not None:
                    transport.abort()
            await anyio.sleep(_FULL_AGAIN_S)

    async def _shake(self, connection: socket.socket) -> None:
        """Carry out the handshake. One that fails is the client's business: it sees why."""
        context = self._context()
        handshake_s = self._limits.handshake_s if context is not None else None
        try:
            with contextlib.suppress(OSError):
                transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
                    self._server, connection, ssl=context, ssl_handshake_timeout=handshake_s
                )
                self._remember(protocol, transport)
        finally:
            self._shaking -= 1

    def _remember(self, protocol: Hashable, transport: asyncio.WriteTransport) -> None:
        self._transports[protocol] = transport
        if len(self._transports) > 2 * self._limits.connections:
            there = set(self._server.connections)
            self._transports = {one: its for one, its in self._transports.items() if one in there}


def listen(host: str, port: int, limits: Limits) -> socket.socket:
    """Listen at an address; port 0 takes a free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=limits.backlog)


def _has_gone(connection: socket.socket) -> bool:
    """Whether the peer has closed it, or its side of it."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))
