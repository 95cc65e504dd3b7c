"""The level of the log is changed while the process runs, from the same machine only, and for a time."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Iterator

import aiohttp
import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from kube.serving import serve
from kube.telemetry.logevents import EVENT, FIELDS
from kube.telemetry.loglevel import PACKAGES, LogLevel, is_local, level_now, set_level


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    set_level("info")
    yield
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.NOTSET)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = web.Application()
    LogLevel().add_to(app)
    listener = socket.create_server(("127.0.0.1", 0))
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, app, listener)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/log-level"
        tasks.cancel_scope.cancel()


async def put(url: str, **query: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.put(url, params=query) as response:
        return response.status, await response.text()


async def test_it_is_shown_and_changed_for_a_time(url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert await put(url, level="debug", for_s="600") == (200, "debug for 600 s, then info\n")
    (line,) = [record for record in caplog.records if record.name == "kube.telemetry.loglevel"]
    assert (getattr(line, EVENT), getattr(line, FIELDS)) == ("log.level", {"chosen": "debug", "for_s": 600})
    assert logging.getLogger("scheduler.cycle").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("aiohttp").isEnabledFor(logging.DEBUG)
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert await response.text() == "debug\n"


async def test_after_the_time_it_is_what_it_was_before_all_changes(url: str) -> None:
    assert await put(url, level="debug", for_s="600") == (200, "debug for 600 s, then info\n")
    assert await put(url, level="error", for_s="1") == (200, "error for 1 s, then info\n")
    with anyio.fail_after(60):
        while level_now() != "info":  # noqa: ASYNC110 - the process changes it, and tells nobody
            await anyio.sleep(0.05)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "level: '' is none of: debug, info, warning, error"),
        ({"level": "loud"}, "level: 'loud' is none of"),
        ({"level": "debug", "for_s": "0"}, "for_s: '0' is not a number from 1 to 86400"),
        ({"level": "debug", "for_s": "864001"}, "for_s: '864001' is not a number"),
        ({"level": "debug", "for_s": "1h"}, "for_s: '1h' is not a number"),
        ({"level": "debug", "for_s": "\u0661"}, "is not a number"),
    ],
)
async def test_what_can_not_be_is_refused(url: str, query: dict[str, str], said: str) -> None:
    status, text = await put(url, **query)
    assert status == 400
    assert said in text
    assert level_now() == "info"


class Connection:
    """A connection from somewhere."""

    def __init__(self, peer: object) -> None:
        self._peer = peer

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._peer if name == "peername" else default


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        (("127.0.0.1", 1), True),
        (("::1", 1, 0, 0), True),
        (("::ffff:127.0.0.1", 1, 0, 0), True),
        (("10.0.0.7", 1), False),
        (("::ffff:10.0.0.7", 1, 0, 0), False),
        (("fe80::1", 1, 0, 0), False),
        ("", False),
        (None, False),
    ],
)
async def test_only_the_same_machine_may_ask(peer: object, local: bool) -> None:
    app = web.Application()
    level = LogLevel()
    level.add_to(app)
    request = make_mocked_request("PUT", "/log-level?level=debug", app=app, transport=Connection(peer))
    assert is_local(request) is local
    if not local:
        assert [(await answer(request)).status for answer in (level._show, level._change)] == [403, 403]
        assert level_now() == "info"
