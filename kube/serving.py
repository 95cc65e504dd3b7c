"""Small HTTP services of a process: an application on a socket, for as long as a task lives."""

from __future__ import annotations

import socket
import ssl
from typing import Final

import anyio
from aiohttp import web
from anyio.abc import TaskStatus

#: Longer than most who ask again wait in between, shorter than anybody minds to hold a connection for them.
_KEEP_ALIVE_S: Final = 15.0
_CLOSE_WITHIN_S: Final = 1.0


async def serve(
    app: web.Application,
    listener: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on a listening socket until cancelled; over TLS where there is a context. Started when it answers."""
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=_KEEP_ALIVE_S, shutdown_timeout=_CLOSE_WITHIN_S)
    await runner.setup()
    try:
        await web.SockSite(runner, listener, ssl_context=tls).start()
        task_status.started()
        await anyio.sleep_forever()
    finally:
        with anyio.move_on_after(_CLOSE_WITHIN_S + 1, shield=True):
            await runner.cleanup()
