"""The API server's clock, read from the Date of its answers.

For what the API server judges by its own clock, such as whether a certificate is valid yet: then a machine whose clock
is wrong, or jumps, decides like all others. Dates come with lists, writes, and each new watch; in between the event
loop's clock counts on, which never jumps.
"""

from __future__ import annotations

import datetime
import email.utils
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio

from kube.client.clock import Clock
from kube.client.transport import OBJECT_BYTES, Response, Transport

_S = 1_000_000_000


class ServerClock:
    """A Transport that passes everything on, and a Clock. Until the first answer it is what ``fallback`` says."""

    def __init__(self, transport: Transport, *, fallback: Clock) -> None:
        self._transport = transport
        self._fallback = fallback
        self._read: tuple[int, float] | None = None
        #: The Date that was read last: answers of one second have the same.
        self._text = ""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch; a second off at most, and what an answer takes to come."""
        if self._read is None:
            return self._fallback.now_ns()
        date_s, at = self._read
        return date_s * _S + round((anyio.current_time() - at) * _S)

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
        """Send a request on; see kube.client.transport.Transport."""
        response = await self._transport.request(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            timeout_s=timeout_s,
            most_bytes=most_bytes,
        )
        self._take(response)
        return response

    def stream(
        self, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch; see kube.client.transport.Transport."""
        return self._stream(path, query=query, timeout_s=timeout_s)

    @asynccontextmanager
    async def _stream(
        self, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        async with self._transport.stream(path, query=query, timeout_s=timeout_s) as (head, lines):
            self._take(head)
            yield head, lines

    def _take(self, response: Response) -> None:
        """A proxy's answer may have no date, or none that can be read: then nothing is learned."""
        text = response.headers.get("date", "")
        if self._read is not None and text == self._text:
            self._read = (self._read[0], anyio.current_time())
            return
        try:
            date = email.utils.parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return
        # Without a zone ("-0000") it is UTC as well, and not this machine's zone.
        date = date if date.tzinfo is not None else date.replace(tzinfo=datetime.UTC)
        self._read, self._text = (int(date.timestamp()), anyio.current_time()), text
