"""How a command that people run reaches the API server: what its options name, else what kubectl would."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from kube.client import config
from kube.client.api import Api
from kube.client.config import ConfigError, Credentials
from kube.client.http_reads import HttpReads
from kube.client.retry import Retry
from kube.client.transport import JSON, OBJECT_BYTES, Response, Transport
from runtime.options import connection
from runtime.options.connection import Where
from runtime.process import rng
from runtime.text import BadInput

_READS: Final = frozenset({"GET", "HEAD"})
_DEFAULT: Final = "~/.kube/config"
#: Somebody waits at a terminal.
FEW_TRIES: Final = 2


#: Instead of no limit, which a write can't have: the server gets it, too, and takes its own limit if that is shorter.
_LONGEST_S: Final = 86_400.0
#: Of a request, where the user names none.
_USUAL_S: Final = 10.0


class Reached:
    """A cluster that is reached: by what, and as whom."""

    def __init__(self, transport: Transport, credentials: Credentials, limit_s: float | None) -> None:
        self.credentials: Final = credentials
        self._limit_s = None if limit_s is None else min(limit_s, _LONGEST_S)
        self.transport: Final = transport if self._limit_s is None else Limited(transport, self._limit_s)

    def api(self, transport: Transport | None = None, *, tries: int = FEW_TRIES) -> Api:
        """Return calls on the cluster. ``transport``: what passes them on, if not ours alone."""
        retry = Retry(rng(), tries=tries)
        return Api(transport or self.transport, retry=retry, timeout_s=self._limit_s or _USUAL_S)


@asynccontextmanager
async def reached(arguments: argparse.Namespace, command: str, *, only_reads: bool = False) -> AsyncIterator[Reached]:
    """Open the way to the cluster that the options name. Raises BadInput where that can't be told.

    ``only_reads``: the command neither writes nor watches, so it needs not wait for aiohttp to be imported.
    """
    where = connection.chosen(arguments)
    credentials = await named(where)
    async with AsyncExitStack() as stack:
        try:
            opening = _transport(credentials, f"moorage-{command}", only_reads=only_reads)
            transport = await stack.enter_async_context(opening)
        except (OSError, ValueError) as error:
            raise BadInput(f"the certificates for {credentials.server} can't be used: {error}") from error
        yield Reached(transport, credentials, where.request_timeout_s)


def _transport(
    credentials: Credentials, user_agent: str, *, only_reads: bool
) -> AbstractAsyncContextManager[Transport]:
    if only_reads and not credentials.proxy:
        return HttpReads(credentials, user_agent=user_agent)
    from kube.client.http import HttpTransport  # aiohttp takes 0.1 s

    return HttpTransport(credentials, user_agent=user_agent)


async def named(where: Where) -> Credentials:
    """Return the credentials that options name. Raises BadInput."""
    try:
        found = await _found(where)
    except ConfigError as error:
        raise BadInput(str(error)) from error
    changed: dict[str, object] = {}
    if where.server:
        changed["server"] = where.server.rstrip("/")
    if where.ca_file:
        changed |= {"ca_file": where.ca_file, "ca_data": b""}
    if where.token_file:
        changed |= {"authorization": await _token(where.token_file), "headers": ()}
        changed |= dict.fromkeys(("client_cert_file", "client_key_file"), "")
        changed |= dict.fromkeys(("client_cert_data", "client_key_data"), b"")
    if where.act_as:
        groups = [("Impersonate-Group", group) for group in where.act_as_groups]
        changed["headers"] = (("Impersonate-User", where.act_as), *groups)
    return msgspec.structs.replace(found, **changed)


async def _token(path: str) -> config.TokenFile:
    token = config.TokenFile(Path(path))
    if not await token():
        raise BadInput(f"--token-file {path}: missing or empty")
    return token


async def _found(where: Where) -> Credentials:
    """What a kubeconfig says, else the address alone, else the pod's service account. Raises ConfigError."""
    path = _kubeconfig(where)
    if path:
        return await config.from_kubeconfig(path=path, context=where.context, cluster=where.cluster)
    if where.server:
        return Credentials(server=where.server)
    try:
        return config.in_cluster()
    except ConfigError as error:
        raise ConfigError(f"{error}; name --kubeconfig, or set KUBECONFIG, or have {_DEFAULT}") from error


def is_configured(where: Where) -> bool:
    """Whether options, a kubeconfig or the pod around us name a cluster. Raises BadInput."""
    try:
        return bool(_kubeconfig(where) or where.server or os.environ.get("KUBERNETES_SERVICE_HOST"))
    except ConfigError as error:
        raise BadInput(str(error)) from error


def _kubeconfig(where: Where) -> str:
    """The file or files to read; "" for none. Raises ConfigError for those that are named and not there."""
    is_of_file = where.kubeconfig or where.context or where.cluster
    if where.server and where.token_file and not is_of_file:
        return ""
    path = where.kubeconfig or os.environ.get("KUBECONFIG", "")
    if path and not any(Path(each).is_file() for each in path.split(os.pathsep) if each):
        option = f"--kubeconfig {path}" if where.kubeconfig else f"KUBECONFIG={path}"
        raise ConfigError(f"{option}: there is no such file")
    default = Path(_DEFAULT).expanduser()
    return path or (str(default) if is_of_file or default.is_file() else "")


class Limited:
    """A transport whose requests take no longer than a user allows, where a write is given up by the server, too."""

    def __init__(self, transport: Transport, limit_s: float) -> None:
        self._transport = transport
        self._limit_s = limit_s

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
        """Send a request on; see kube.client.transport.Transport."""
        within_s = self._limit_s if method in _READS else min(self._limit_s, timeout_s)
        return await self._transport.request(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout_s=within_s,
            most_bytes=most_bytes,
        )

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch; see kube.client.transport.Transport."""
        return self._transport.stream(path, query=query, accept=accept, timeout_s=min(self._limit_s, timeout_s))
