"""How a process of ours reaches the API server, and how it is told to end."""

from __future__ import annotations

import os
import random
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from cli.logs.levels import tell_repeats
from cli.logs.repeats import Limited
from cli.memory import trim_now_and_then
from cli.settings.common import Connection
from kube.client import config
from kube.client.config import ConfigError, Credentials
from kube.client.http import CONNECTIONS, HttpTransport

_DEFAULT_KUBECONFIG: Final = anyio.Path("~/.kube/config")
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


async def credentials_of_user(where: Connection) -> Credentials:
    """Return the credentials for a command that people run: those that it names, or else kubectl's.

    Raises kube.client.config.ConfigError.
    """
    if where.server:
        return await credentials(where)
    return await as_kubectl(kubeconfig=where.kubeconfig, context=where.context)


async def as_kubectl(*, kubeconfig: str, context: str) -> Credentials:
    """Return what is told, else what a kubeconfig says where there is one, else the pod's service account.

    Raises kube.client.config.ConfigError.
    """
    if kubeconfig and not await anyio.Path(kubeconfig).is_file():
        raise ConfigError(f"--kubeconfig {kubeconfig}: there is no such file")
    path = kubeconfig or os.environ.get("KUBECONFIG", "")
    if path and not any([await anyio.Path(each).is_file() for each in path.split(os.pathsep) if each]):
        raise ConfigError(f"KUBECONFIG={path}: there is no such file")
    default = await _DEFAULT_KUBECONFIG.expanduser()
    if path or context or await default.is_file():
        return await config.from_kubeconfig(path=path or str(default), context=context)
    try:
        return config.in_cluster()
    except ConfigError as error:
        raise ConfigError(f"{error}; name --kubeconfig, or set KUBECONFIG, or have {_DEFAULT_KUBECONFIG}") from error


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


def rng() -> random.Random:
    """Randomness of a real process: seeded from the system, passed in from here on."""
    return random.Random(secrets.randbits(128))  # noqa: S311 - jitter and ids, no secrets
