"""What servers log of requests that are none. Over loopback, in real time."""

from __future__ import annotations

import logging
import socket

import anyio
import pytest
from aiohttp import web

from kube.serving import SERVER_LOG, serve
from tests.conftest import AnyioBackend

NO_HTTP = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 9000 + b"\r\n\r\n",
    b"\x16\x03\x01\r\n\r\n",
)


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


async def answered(*requests: bytes) -> list[bytes]:
    """Ask a server whose one handler fails, on a connection each; return the first line of each answer."""

    async def fails(_: web.Request) -> web.StreamResponse:
        raise ValueError("of ours")

    app = web.Application()
    app.router.add_get("/", fails)
    lines = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as tasks:
            await tasks.start(serve, app, listener)
            for request in requests:
                async with await anyio.connect_tcp(*listener.getsockname()) as stream:
                    await stream.send(request)
                    lines.append((await stream.receive()).partition(b"\r\n")[0])
            tasks.cancel_scope.cancel()
    return lines


@pytest.mark.parametrize(("level", "expected"), [(logging.INFO, 0), (logging.DEBUG, len(NO_HTTP))])
async def test_what_is_no_http_is_logged_for_who_debugs(
    level: int, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(level, SERVER_LOG.name):
        answers = await answered(*NO_HTTP)
    assert {line.split()[1] for line in answers} == {b"400"}
    assert len([record for record in caplog.records if "Error handling request" in record.getMessage()]) == expected


async def test_an_error_of_a_handler_is_logged_with_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    assert (await answered(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"))[0].split()[1] == b"500"
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "of ours"
