"""How a component reaches the API server, and which signals end it. Commands of people: runtime/client.py."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from kube.client import config
from kube.client.config import ConfigError, Credentials
from kube.client.http import CONNECTIONS, HttpTransport
from runtime.logs import Limited, tell_repeats
from runtime.process import trim_now_and_then
from runtime.settings.common import Connection

#: Runs a component until it ends; one that sees ``stop`` set finishes what it has begun.
Run = Callable[[anyio.Event], Awaitable[None]]


async def until_told(run: Run, log: Limited) -> None:
    """Run what logs to ``log`` until it ends; the first signal asks it to stop, a second one makes it."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def component() -> None:
            await run(stop)
            tasks.cancel_scope.cancel()

        tasks.start_soon(component)
        tasks.start_soon(trim_now_and_then)
        tasks.start_soon(tell_repeats, log)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if stop.is_set():
                    tasks.cancel_scope.cancel()
                stop.set()


async def credentials(where: Connection) -> Credentials:
    """Return the credentials that settings name. Raises kube.client.config.ConfigError."""
    if where.server:
        token = config.TokenFile(Path(where.token_file)) if where.token_file else None
        return Credentials(server=where.server, ca_file=where.ca_file, authorization=token)
    if where.kubeconfig:
        return await config.from_kubeconfig(path=where.kubeconfig, context=where.context)
    try:
        return config.in_cluster()
    except ConfigError as error:
        raise ConfigError(f"{error}; outside of one name --kubeconfig, or --server") from error


@asynccontextmanager
async def transport(
    where: Connection, component: str, *, replica: str, connections: int = CONNECTIONS
) -> AsyncIterator[HttpTransport]:
    """Open a transport under the identity that settings name.

    Replicas share a service account, so the User-Agent tells which one it was: audit logs keep it. The API server
    takes what stands before the slash for the name in managedFields, which must be the same for all replicas.
    """
    user_agent = f"moorage-{component}/{replica}"
    made = HttpTransport(await credentials(where), connections=connections, user_agent=user_agent)
    async with made as opened:
        yield opened
