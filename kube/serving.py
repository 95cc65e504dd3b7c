"""Small HTTP services of a process: an application on a socket, for as long as a task lives."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from anyio.abc import TaskStatus

#: Longer than most clients wait between requests, and short enough to keep a connection open for. The connection of a
#: client that sends no request for this long, or half of one, is closed.
KEEP_ALIVE_S: Final = 15.0
_CLOSE_WITHIN_S: Final = 1.0
#: What servers log of themselves. Requests that are no HTTP are logged at DEBUG only: any client that reaches the port
#: can send thousands a second, each of them an error with a traceback of twenty lines.
SERVER_LOG: Final = logging.getLogger(__name__)


def _is_of_us(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError) or SERVER_LOG.isEnabledFor(logging.DEBUG)


SERVER_LOG.addFilter(_is_of_us)


async def serve(
    app: web.Application, listener: socket.socket, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Serve on a listening socket until cancelled. Started when it answers."""
    async with _set_up(app, KEEP_ALIVE_S) as runner:
        await web.SockSite(runner, listener).start()
        task_status.started()
        await anyio.sleep_forever()


@asynccontextmanager
async def running(app: web.Application, *, keep_alive_s: float = KEEP_ALIVE_S) -> AsyncIterator[web.Server]:
    """What serves connections that somebody else accepts (admission/connections.py), as long as this is open."""
    async with _set_up(app, keep_alive_s) as runner:
        if runner.server is None:
            raise ValueError("the runner is not set up")
        yield runner.server


@asynccontextmanager
async def _set_up(app: web.Application, keep_alive_s: float) -> AsyncIterator[web.AppRunner]:
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=SERVER_LOG,
        keepalive_timeout=keep_alive_s,
        shutdown_timeout=_CLOSE_WITHIN_S,
    )
    await runner.setup()
    try:
        yield runner
    finally:
        with anyio.move_on_after(_CLOSE_WITHIN_S + 1, shield=True):
            await runner.cleanup()
