"""A transport that asks again: for parts that take an hour and measure no latency, on a machine that others use too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import msgspec

from kube.client.errors import Unreachable
from kube.client.transport import OBJECT_BYTES, Response, Transport

_TRIES: Final = 20
_PAUSE_S: Final = 3.0
#: What an earlier try may have left behind: for the one who asks it is done.
_DONE: Final = {"POST": 409, "DELETE": 404}


class Patient:
    """Repeats calls that are answered with 429 or 5xx, or not at all. Watches go through as they are."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        """See kube.client.transport.Transport. The last try's failure is raised, or handed back, as it was."""
        number = 0
        while True:
            number += 1
            try:
                answer = await self._inner.request(
                    method,
                    path,
                    query=query,
                    body=body,
                    content_type=content_type,
                    timeout_s=timeout_s,
                    most_bytes=most_bytes,
                )
            except Unreachable:
                if number == _TRIES:
                    raise
            else:
                if number > 1 and answer.status == _DONE.get(method):
                    return msgspec.structs.replace(answer, status=200)
                if number == _TRIES or (answer.status < 500 and answer.status != 429):
                    return answer
            await anyio.sleep(_PAUSE_S)

    def stream(
        self, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """See kube.client.transport.Transport."""
        return self._inner.stream(path, query=query, timeout_s=timeout_s)
