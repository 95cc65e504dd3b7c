"""The cut to the network: bytes in, bytes out.

It lies below everything that can be wrong, so decoding, retries and the reflector are the same code over aiohttp
(kube/client/http.py) and over the in-memory API server (kube/memory/transport.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class Response(msgspec.Struct, frozen=True):
    """An answer with its whole body. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Carries requests to one API server under one identity."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float,
    ) -> Response:
        """Send one request and return its answer, with any status.

        Raises kube.client.errors.Timeout or kube.client.errors.Unreachable when no whole answer came.
        """
        ...

    def stream(
        self, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch (GET). Yields the answer's head and its lines as they come.

        On a status other than 200 the Response carries the whole body and there are no lines. ``timeout_s`` bounds
        the wait for the head only; silence is the reader's to judge. A broken connection raises Unreachable from the
        iterator; an orderly end of the stream just ends it.
        """
        ...
