"""Requests to the API server and watches of it, counted.

A Transport counts every try of every request. Of watches it is read from the reflectors, when asked, how they do and
how late they are.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import anyio
from prometheus_client import Counter, Histogram

from kube.client.errors import Timeout, Unreachable
from kube.client.server_time import WatchLag
from kube.client.transport import OBJECT_BYTES, Response, Transport
from kube.watch.reflector import Reflector
from runtime.metrics.declared import (
    API_REQUESTS,
    API_SECONDS,
    WATCH_EVENTS,
    WATCH_LAG,
    WATCH_LISTS,
    WATCH_SILENCE,
    WATCH_UNREADABLE,
)
from runtime.metrics.registry import Registry, Sample

_WATCH: Final = "watch"
_OTHER: Final = "other"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def kind_of(method: str, path: str) -> tuple[str, str]:
    """What a request does, and to what: ``("create", "pods/binding")``. ``other`` for what is no object's path.

    Names are left out: there would be a series for each.
    """
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    if not rest:
        return _VERBS.get(method, "get"), _OTHER
    resource = f"{rest[0]}/{rest[2]}" if len(rest) > 2 else rest[0]
    reads = "get" if len(rest) > 1 else "list"
    return _VERBS.get(method, reads), resource


class CountedTransport:
    """Passes everything on, and counts."""

    def __init__(self, transport: Transport, registry: Registry) -> None:
        self._transport = transport
        self._requests = registry.counter(API_REQUESTS)
        self._seconds = registry.histogram(API_SECONDS)
        self._counting: dict[tuple[str, str, str], Counter] = {}
        self._timing: dict[tuple[str, str], Histogram] = {}

    def beside(self, transport: Transport) -> CountedTransport:
        """Return one that passes on to another transport, and counts in the same place."""
        other = copy.copy(self)
        other._transport = transport  # noqa: SLF001 - of this very class
        return other

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
        kind = kind_of(method, path)
        began = anyio.current_time()
        try:
            response = await self._transport.request(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                timeout_s=timeout_s,
                most_bytes=most_bytes,
            )
        except Unreachable as error:
            self._count(kind, error)
            raise
        self._count(kind, response)
        self._time(kind, anyio.current_time() - began)
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
        kind = (_WATCH, kind_of("GET", path)[1])
        is_open = False
        try:
            async with self._transport.stream(path, query=query, timeout_s=timeout_s) as (head, lines):
                is_open = True
                self._count(kind, head)
                yield head, lines
        except Unreachable as error:
            if not is_open:
                self._count(kind, error)
            raise

    def _count(self, kind: tuple[str, str], end: Response | Unreachable) -> None:
        key = (*kind, _code(end))
        child = self._counting.get(key)
        if child is None:
            child = self._counting[key] = self._requests.labels(*key)
        child.inc()

    def _time(self, kind: tuple[str, str], seconds: float) -> None:
        child = self._timing.get(kind)
        if child is None:
            child = self._timing[kind] = self._seconds.labels(*kind)
        child.observe(seconds)


def _code(end: Response | Unreachable) -> str:
    if isinstance(end, Response):
        return str(end.status)
    return "timeout" if isinstance(end, Timeout) else "unreachable"


def count_watches(registry: Registry, reflectors: Sequence[Reflector[Any]]) -> None:
    """Show what these reflectors have done, and for how long they have heard nothing.

    Several may watch one resource, in different namespaces: what they did is added up, the longest silence counts.
    """
    by_resource: dict[str, list[Reflector[Any]]] = {}
    for reflector in reflectors:
        by_resource.setdefault(reflector.resource.plural, []).append(reflector)

    def of_each(value: Callable[[Sequence[Reflector[Any]]], float]) -> Callable[[], Iterable[Sample]]:
        return lambda: [((resource,), value(each)) for resource, each in by_resource.items()]

    def silence_s(each: Sequence[Reflector[Any]]) -> float:
        return anyio.current_time() - min(reflector.heard_at for reflector in each)

    registry.read(WATCH_SILENCE, of_each(silence_s))
    registry.read(WATCH_EVENTS, of_each(lambda each: sum(reflector.counts.events for reflector in each)))
    registry.read(WATCH_LISTS, of_each(lambda each: sum(reflector.counts.lists for reflector in each)))
    registry.read(WATCH_UNREADABLE, of_each(lambda each: sum(len(reflector.undecodable) for reflector in each)))


def measured_lag(registry: Registry) -> WatchLag:
    """Measure how late watches are."""
    seconds = registry.histogram(WATCH_LAG)
    return WatchLag(lambda resource, lag_s: seconds.labels(resource).observe(lag_s))
