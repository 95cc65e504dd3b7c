"""How connections come in, over TLS on loopback: what is waited for is an answer or an end, never a while."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from typing_extensions import override

from admission.certificates import tls
from admission.certificates.pair import serving_certificate
from admission.connections import Entrance, Limits, Pace, listen
from kube.client.clock import SystemClock

PATIENCE_S = 120


class Echo(asyncio.Protocol):
    """Answers each byte with the same."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self.transport: Any = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._server.connections.append(self)

    @override
    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.remove(self)


class Served:
    """``begun``: how many handshakes were."""

    def __init__(self) -> None:
        self.connections: list[Echo] = []
        self.begun = 0

    def __call__(self) -> asyncio.BaseProtocol:
        self.begun += 1
        return Echo(self)


class Site:
    """A socket that listens, and later a running entrance."""

    def __init__(self, limits: Limits, listening: socket.socket | None = None) -> None:
        made = serving_certificate(addresses=["127.0.0.1"], now_ns=SystemClock().now_ns())
        context = tls.server_context()
        tls.load(context, made.certificate, made.key)
        self.served = Served()
        self.listening = listening or listen("127.0.0.1", 0, limits)
        #: Connections of which a request is being read.
        self.asking: set[object] = set()
        is_asking = self.asking.__contains__
        self.entrance = Entrance(self.listening, lambda: context, self.served, limits=limits, is_asking=is_asking)
        self.address: tuple[str, int] = self.listening.getsockname()
        self._opened: list[ByteStream] = []
        self._trust = ssl.create_default_context(cadata=made.ca.decode())

    async def silent(self) -> ByteStream:
        """Connect and say nothing."""
        stream = await anyio.connect_tcp(*self.address)
        self._opened.append(stream)
        return stream

    async def connect(self) -> TLSStream:
        """Connect, and be answered once. The server must not wait for a goodbye, nor we."""
        stream = await anyio.connect_tcp(
            *self.address, ssl_context=self._trust, tls_hostname="127.0.0.1", tls_standard_compatible=False
        )
        self._opened.append(stream)
        await self.ask(stream)
        return stream

    async def ask(self, stream: TLSStream) -> None:
        await stream.send(b"x")
        assert await stream.receive() == b"x"

    async def close(self) -> None:
        """Close all that was opened, on both sides."""
        for stream in self._opened:
            await anyio.aclose_forcefully(stream)
        for echo in self.served.connections:
            if echo.transport is not None:
                echo.transport.abort()
        await until(lambda: not self.served.connections)


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[None]:
    with site.listening, anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(site.entrance.run)
            yield
            await site.close()
            tasks.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is another process' or the kernel's doing
        await anyio.sleep(0.005)


async def is_ended(stream: ByteStream) -> bool:
    """Read on until the other side ends it."""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await stream.receive()
    return True


@pytest.mark.parametrize(
    ("begun_s", "next_s"),
    [
        # Quiet before: four at once, then one each 10 ms.
        ([0, 0, 0], 0),
        ([0, 0, 0, 0], 0.01),
        ([0, 0, 0, 0, 0.01, 0.02], 0.03),
        # What was not used is saved, up to four.
        ([0, 0, 0, 0, 0.02], 0.02),
        ([0, 0, 0, 0, 100, 100, 100], 100),
        ([0, 0, 0, 0, 100, 100, 100, 100], 100.01),
    ],
)
def test_handshakes_begin_at_a_pace_and_a_few_at_once_after_a_pause(begun_s: list[float], next_s: float) -> None:
    pace = Pace(Limits(every_s=0.01, at_once=4))
    due_s = [pace.begun(now_s) for now_s in begun_s][-1]
    assert max(due_s, begun_s[-1]) == pytest.approx(next_s)


async def test_of_a_storm_only_a_few_handshakes_begin_before_those_who_are_there_have_their_turn() -> None:
    """A server of asyncio's own would begin all that wait in the backlog before it looks at anything else."""
    # So slow a pace that the machine's own pace does not show: the first few, then nobody.
    limits = Limits(every_s=10_000, at_once=4)
    site = Site(limits)
    async with running(site):
        there = await site.connect()
        for _ in range(60):
            await site.silent()
        await until(lambda: site.served.begun == limits.at_once)
        for _ in range(100):
            await site.ask(there)
        assert site.served.begun == limits.at_once


async def test_all_of_a_storm_come_in_sooner_or_later() -> None:
    site = Site(Limits())
    async with running(site), anyio.create_task_group() as clients:
        for _ in range(60):
            clients.start_soon(site.connect)
    assert site.served.begun == 60


async def test_who_gave_up_while_waiting_costs_no_handshake() -> None:
    site = Site(Limits())
    for _ in range(20):
        with socket.create_connection(site.address) as gone:
            gone.sendall(b"\x16\x03\x01")
    async with running(site):
        await site.connect()
    assert site.served.begun == 1


async def test_who_says_nothing_holds_nobody_up() -> None:
    site = Site(Limits())
    async with running(site):
        for _ in range(40):
            await site.silent()
        await site.connect()


async def test_who_says_nothing_is_let_go() -> None:
    site = Site(Limits(handshake_s=0.05))
    async with running(site):
        assert await is_ended(await site.silent())


async def test_what_is_no_tls_ends_that_connection_only() -> None:
    site = Site(Limits())
    async with running(site):
        plain = await site.silent()
        await plain.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await is_ended(plain)
        await site.connect()


async def test_of_too_many_connections_the_first_of_those_that_ask_nothing_makes_room() -> None:
    """Whoever can reach us can open as many, and would keep the API server out."""
    site = Site(Limits(connections=3))
    async with running(site):
        first, second, third = [await site.connect() for _ in range(3)]
        site.asking.add(site.served.connections[0])
        fourth = await site.connect()
        assert await is_ended(second)
        for stays in (first, third, fourth):
            await site.ask(stays)
        assert len(site.served.connections) == 3


async def test_where_all_ask_the_one_that_came_first_makes_room() -> None:
    site = Site(Limits(connections=2))
    async with running(site):
        first, second = [await site.connect() for _ in range(2)]
        site.asking.update(site.served.connections)
        await site.connect()
        assert await is_ended(first)
        await site.ask(second)


async def test_handshakes_that_do_not_go_on_put_out_no_more_than_half() -> None:
    site = Site(Limits(connections=4))
    async with running(site):
        *gone, third, fourth = [await site.connect() for _ in range(4)]
        for _ in range(20):
            await site.silent()
        for each in gone:
            assert await is_ended(each)
        for _ in range(20):
            await site.ask(third)
            await site.ask(fourth)
        assert len(site.served.connections) == 2


async def test_who_ends_makes_room_too() -> None:
    site = Site(Limits(connections=1))
    async with running(site):
        for _ in range(3):
            connected = await site.connect()
            await connected.aclose()


async def test_who_does_not_say_goodbye_makes_room_too() -> None:
    """As aiohttp ends a connection on which nothing is asked: it forgets the transport, and TLS waits for an answer."""
    site = Site(Limits(connections=2))
    async with running(site):
        for _ in range(2):
            await site.connect()
        for echo in site.served.connections:
            ending, echo.transport = echo.transport, None
            ending.close()
        with anyio.fail_after(20):  # asyncio would wait for 30 s
            await site.connect()


async def test_who_is_there_is_remembered_and_no_others() -> None:
    site = Site(Limits(connections=2))
    async with running(site):
        for _ in range(12):
            connected = await site.connect()
            await connected.aclose()
        assert len(site.entrance._transports) <= 4


async def test_without_a_certificate_connections_come_in_as_they_are() -> None:
    served = Served()
    with listen("127.0.0.1", 0, Limits()) as listening, anyio.fail_after(PATIENCE_S):
        entrance = Entrance(listening, lambda: None, served, limits=Limits(connections=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(entrance.run)
            async with await anyio.connect_tcp(*listening.getsockname()) as first:
                await first.send(b"x")
                assert await first.receive() == b"x"
                async with await anyio.connect_tcp(*listening.getsockname()) as second:
                    await second.send(b"x")
                    assert await second.receive() == b"x"
                    assert await is_ended(first)
                    served.connections[0].transport.abort()
            tasks.cancel_scope.cancel()


async def test_want_of_descriptors_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    class Poor(socket.socket):
        """The first accept fails as if no descriptor were left."""

        failed = False

        @override
        def accept(self) -> tuple[socket.socket, Any]:
            if not Poor.failed:
                Poor.failed = True
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().accept()

    with Poor() as poor:
        poor.bind(("127.0.0.1", 0))
        poor.listen()
        site = Site(Limits(), poor)
        async with running(site):
            await site.connect()
    assert "no connection can be accepted: [Errno 24] Too many open files" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_it_listens_at_addresses_of_either_kind(host: str) -> None:
    try:
        listening = listen(host, 0, Limits())
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    with listening:
        assert listening.getsockname()[1] > 0
