"""Time as the API server tells it: its clock, and how late our watches are.

For what the API server judges by its own clock, such as whether a certificate is valid yet: then a machine whose clock
is wrong, or jumps, decides like all others. Dates come with lists, writes, and each new watch; in between the event
loop's clock counts on, which never jumps.

Nothing in a watch says how old it is: times in objects are of other machines' clocks, in whole seconds. But the answer
to a write names the version that it made, and our own watch shows that very version some time later. What lies between
the two is the lag, on one monotonic clock. Watches of what nobody of us writes have none that could be measured.
"""

from __future__ import annotations

import datetime
import email.utils
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

import anyio
import msgspec

from kube.client.clock import Clock
from kube.client.transport import JSON, OBJECT_BYTES, Response, Transport
from wire.core import ObjectMeta
from wire.tombstones import is_older
from wire.units import SECOND_NS


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
        return date_s * SECOND_NS + round((anyio.current_time() - at) * SECOND_NS)

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
        response = await self._transport.request(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout_s=timeout_s,
            most_bytes=most_bytes,
        )
        self._take(response)
        return response

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch; see kube.client.transport.Transport."""
        return self._stream(path, query=query, accept=accept, timeout_s=timeout_s)

    @asynccontextmanager
    async def _stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        async with self._transport.stream(path, query=query, accept=accept, timeout_s=timeout_s) as (head, lines):
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


V = TypeVar("V")

#: Objects that are remembered on each side. Who is forgotten is not measured.
_MOST: Final = 1024

#: Resource (plural) and UID.
_Key = tuple[str, str]


class _Written(msgspec.Struct, frozen=True, gc=False):
    rv: str
    at: float


class WatchLag:
    """Told of writes by an Api and of events by its reflectors. ``observe`` gets a resource (plural) and seconds."""

    def __init__(self, observe: Callable[[str, float], None]) -> None:
        self._observe = observe
        self._followed: set[str] = set()
        self._written: OrderedDict[_Key, _Written] = OrderedDict()
        #: An event may come before the answer to its write does.
        self._shown: OrderedDict[_Key, str] = OrderedDict()

    def follow(self, resource: str) -> None:
        """Somebody watches these."""
        self._followed.add(resource)

    def wrote(self, resource: str, meta: ObjectMeta) -> None:
        """The answer to a write has come: the object as stored."""
        if resource not in self._followed:
            return
        key = (resource, meta.uid)
        if self._shown.get(key) == meta.resource_version:
            self._observe(resource, 0.0)
            return
        self._written[key] = _Written(meta.resource_version, anyio.current_time())
        _limit(self._written)

    def shown(self, resource: str, meta: ObjectMeta) -> None:
        """A watch shows an object that is new or changed.

        A version after the one that is waited for means that this one was shown before: the write changed nothing.
        """
        key = (resource, meta.uid)
        self._shown[key] = meta.resource_version
        self._shown.move_to_end(key)
        _limit(self._shown)
        written = self._written.get(key)
        if written is None or is_older(meta.resource_version, written.rv):
            return
        del self._written[key]
        if meta.resource_version == written.rv:
            self._observe(resource, anyio.current_time() - written.at)

    def listed(self, resource: str) -> None:
        """A new list was taken: what it held comes by no watch any more."""
        for key in [key for key in self._written if key[0] == resource]:
            del self._written[key]


def _limit(remembered: OrderedDict[_Key, V]) -> None:
    if len(remembered) > _MOST:
        remembered.popitem(last=False)
