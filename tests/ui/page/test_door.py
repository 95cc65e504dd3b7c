"""How readers come in, by real sockets and a real TLS client: nobody stays who says nothing, or reads nothing."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from anyio.streams.tls import TLSStream

from admission.certificates.pair import ServingCertificate, serving_certificate
from admission.certificates.tls import Files, FilesShown
from admission.connections import Limits as Pace
from kube.client.clock import SystemClock
from ui.page.auth import Open
from ui.page.server import LIMITS, Answering, Door, PageLimits
from ui.page.values import EventLine
from ui.page.watch import Publishing

PATIENCE_S = 120.0
STATE = b"GET /api/state HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Source:
    """What is followed does not matter here."""

    is_in_step = True

    def troubles(self) -> tuple[str, ...]:
        return ()

    def silent_s(self) -> int:
        return 0

    def idle(self) -> tuple[str, ...]:
        return ()


def pair() -> ServingCertificate:
    return serving_certificate(addresses=["127.0.0.1"], now_ns=SystemClock().now_ns())


class Page:
    """A page whose state is ``kib`` large, packed, served over TLS by the pair in a folder."""

    def __init__(
        self, folder: Path, *, kib: int = 1, pace: Pace = LIMITS, ask_within_s: float = 15.0, **limits: Any
    ) -> None:
        self._folder = folder
        self.made = pair()
        self.write(self.made.certificate, self.made.key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # else the kernel takes it all
        shown = FilesShown(Files(certificate=folder / "tls.crt", key=folder / "tls.key", reload_s=0.02))
        self.shown = shown
        self.door = Door(self.listener, shown, limits=pace, ask_within_s=ask_within_s)
        publishing = Publishing("epoch")
        rng = random.Random(1)
        for number in range(0, kib, 5):
            note = "".join(rng.choices("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-", k=5 * 1365))
            publishing.objects.put_event(EventLine(key=f"n/{number}", namespace="n", pod="p", note=note))
        self.answering = Answering(
            publishing,
            Source(),
            Open(),
            source="a test",
            hosts=None,
            pulse_s=0.05,
            limits=PageLimits(**limits),
            warnings=self.door.warnings,
        )

    def write(self, certificate: bytes, key: bytes) -> None:
        (self._folder / "tls.crt").write_bytes(certificate)
        (self._folder / "tls.key").write_bytes(key)

    async def connect(self) -> TLSStream:
        """Connect and shake hands; who is not to read has little room to read into."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await anyio.to_thread.run_sync(raw.connect, self.listener.getsockname())
        stream = await anyio.abc.SocketStream.from_socket(raw)
        trust = ssl.create_default_context(cadata=self.made.ca.decode())
        return await TLSStream.wrap(stream, hostname="127.0.0.1", ssl_context=trust, standard_compatible=False)

    @asynccontextmanager
    async def client(self, made: ServingCertificate) -> AsyncIterator[aiohttp.ClientSession]:
        """Somebody new who trusts one CA."""
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=made.ca.decode()))
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(self.door.address, connector=connector, timeout=timeout) as client:
            yield client

    async def is_trusted(self, made: ServingCertificate) -> bool:
        async with self.client(made) as client:
            try:
                async with client.get("/api/state") as answer:
                    return answer.status == 200
            except aiohttp.ClientConnectorCertificateError:
                return False


@asynccontextmanager
async def open_door(page: Page) -> AsyncIterator[None]:
    await page.shown.begin()
    with page.listener, anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(page.door.let_in, page.answering)
            yield
            for _ in range(20):
                await anyio.lowlevel.checkpoint()  # those who have gone are seen to have
            tasks.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is the kernel's doing
        await anyio.sleep(0.01)


async def rest(stream: TLSStream) -> bytes:
    """Read all until the other side ends it, well or not."""
    read = b""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            read += await stream.receive()
    return read


async def health(page: Page, made: ServingCertificate) -> str:
    async with page.client(made) as client, client.get("/api/changes?after=epoch-0") as answer:
        return (await answer.content.readuntil(b"\n\n")).decode()


async def test_a_renewed_certificate_is_shown_to_who_comes_and_open_pages_stay(tmp_path: Path) -> None:
    page, new = Page(tmp_path), pair()
    async with open_door(page), page.client(page.made) as old, old.get("/api/changes?after=epoch-0") as stream:
        await stream.content.readuntil(b"\n\n")
        page.write(new.certificate, new.key)
        while not await page.is_trusted(new):
            pass
        assert not await page.is_trusted(page.made)
        for _ in range(3):
            assert b"health" in await stream.content.readuntil(b"\n\n")


async def test_a_broken_pair_is_not_shown_and_the_page_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page, new = Page(tmp_path), pair()
    async with open_door(page):
        assert "warnings" not in await health(page, page.made)
        page.write(new.certificate, page.made.key)
        said = ""
        while "the new certificate is not usable, the old one is kept" not in said:
            said = await health(page, page.made)
        assert "the new certificate is not usable" in caplog.text
        page.write(new.certificate, new.key)
        while not await page.is_trusted(new):
            pass
        assert "warnings" not in await health(page, new)


async def test_who_does_not_read_the_state_is_let_go(tmp_path: Path) -> None:
    page = Page(tmp_path, kib=500, unread_s=0.3)
    async with open_door(page):
        idle = await page.connect()
        await idle.send(STATE)
        await until(lambda: bool(page.answering._busy))
        await until(lambda: not page.answering._busy)
        assert len(await rest(idle)) < 400 * 1024
        await anyio.aclose_forcefully(idle)


@pytest.mark.thorough
async def test_who_reads_slowly_gets_it_all(tmp_path: Path) -> None:
    """In more time than is given to a piece of it."""
    page = Page(tmp_path, kib=1500, unread_s=2.5)
    async with open_door(page):
        stream = await page.connect()
        await stream.send(STATE)
        began, read, length = anyio.current_time(), b"", 0
        while not length or len(read) < length:
            read += await stream.receive()
            head, found, _ = read.partition(b"\r\n\r\n")
            if found and not length:
                told = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                length = len(head) + 4 + int(told)
            await anyio.sleep_until(began + 3.0 * len(read) / max(length, 1))
        assert length > 1400 * 1024
        await anyio.aclose_forcefully(stream)


@pytest.mark.parametrize("said", [b"", b"GET /api/state HTTP/1.1\r\nHost: loc"])
async def test_who_does_not_ask_to_an_end_is_let_go(said: bytes, tmp_path: Path) -> None:
    """Which is aiohttp's to do: it has not always done so for the first request."""
    page = Page(tmp_path, ask_within_s=0.2)
    async with open_door(page):
        stream = await page.connect()
        if said:
            await stream.send(said)
        assert await rest(stream) == b""
        await anyio.aclose_forcefully(stream)


async def test_who_does_not_shake_hands_is_let_go(tmp_path: Path) -> None:
    page = Page(tmp_path, pace=Pace(handshake_s=0.1))
    async with open_door(page):
        stream = await anyio.connect_tcp(*page.listener.getsockname())
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await stream.aclose()


async def test_of_too_many_those_that_ask_nothing_make_room_and_open_pages_stay(tmp_path: Path) -> None:
    page = Page(tmp_path, pace=Pace(connections=4))
    async with open_door(page), page.client(page.made) as reader, reader.get("/api/changes?after=epoch-0") as stream:
        await stream.content.readuntil(b"\n\n")
        silent = [await page.connect() for _ in range(12)]
        for each in silent[:8]:
            assert await rest(each) == b""
        assert await page.is_trusted(page.made)
        for _ in range(3):
            assert b"health" in await stream.content.readuntil(b"\n\n")
        for each in silent:
            await anyio.aclose_forcefully(each)
