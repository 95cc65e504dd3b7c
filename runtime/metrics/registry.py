"""The metrics of a process by declaration, served at ``/metrics``; among them its requests, watches and event-loop lag.

A Transport counts every try of every request. The state and the lag of watches are read from the reflectors when
somebody asks. A late event loop delays everything, leases included.
"""

from __future__ import annotations

import copy
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import anyio
from aiohttp import web
from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry
from typing_extensions import override

from kube.client.errors import Timeout, Unreachable
from kube.client.server_time import WatchLag
from kube.client.transport import JSON, OBJECT_BYTES, Response, Transport
from kube.serving import serve
from kube.watch.reflector import Reflector
from runtime.metrics.declared import (
    API_REQUESTS,
    API_SECONDS,
    LOOP_LAG,
    WATCH_EVENTS,
    WATCH_LAG,
    WATCH_LISTS,
    WATCH_SILENCE,
    WATCH_UNREADABLE,
    Kind,
    Metric,
)

#: A value and the labels it is under, in the order of their declaration.
Sample = tuple[tuple[str, ...], float]

_NO_LABELS: Final = ()


class Registry:
    """What is counted here. ``collectors`` is what an endpoint shows."""

    def __init__(self) -> None:
        # When each series was begun: twice as many series, and no query of anybody's reads them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.collectors = CollectorRegistry(auto_describe=False)
        #: What was declared to be counted here.
        self.metrics: list[Metric] = []
        ProcessCollector(registry=self.collectors)

    def counter(self, metric: Metric) -> Counter:
        """Count what only grows."""
        return Counter(*self._declared(metric, Kind.COUNTER), registry=self.collectors)

    def gauge(self, metric: Metric) -> Gauge:
        """Keep what is now."""
        return Gauge(*self._declared(metric, Kind.GAUGE), registry=self.collectors)

    def histogram(self, metric: Metric) -> Histogram:
        """Count by size."""
        return Histogram(*self._declared(metric, Kind.HISTOGRAM), registry=self.collectors, buckets=metric.buckets)

    def read(self, metric: Metric, samples: Callable[[], Iterable[Sample]]) -> None:
        """Have a counter or gauge read whenever somebody asks: what is kept anyway costs nothing until then."""
        self._declared(metric, metric.kind)
        self.collectors.register(_Read(metric, samples))

    def read_one(self, metric: Metric, value: Callable[[], float]) -> None:
        """Have a counter or gauge without labels read whenever somebody asks."""
        self.read(metric, lambda: [(_NO_LABELS, value())])

    def read_together(self, metrics: Sequence[Metric], samples: Callable[[], Iterable[tuple[Metric, Sample]]]) -> None:
        """Have several read by one look, whenever somebody asks."""
        for metric in metrics:
            self._declared(metric, metric.kind)
        self.collectors.register(_ReadTogether(metrics, samples))

    def _declared(self, metric: Metric, kind: Kind) -> tuple[str, str, tuple[str, ...]]:
        if metric.kind is not kind:
            raise ValueError(f"{metric.name} is declared as a {metric.kind.value}, not as a {kind.value}")
        self.metrics.append(metric)
        return metric.name, metric.help, tuple(metric.labels)


class _Read(Collector):
    """Makes a family of what is read."""

    def __init__(self, metric: Metric, samples: Callable[[], Iterable[Sample]]) -> None:
        self._metric = metric
        self._samples = samples

    @override
    def collect(self) -> Iterator[Family]:
        family = _family(self._metric)
        for labels, value in self._samples():
            family.add_metric(list(labels), value)
        yield family


class _ReadTogether(Collector):
    """Makes several families of what is read at once."""

    def __init__(self, metrics: Sequence[Metric], samples: Callable[[], Iterable[tuple[Metric, Sample]]]) -> None:
        self._metrics = metrics
        self._samples = samples

    @override
    def collect(self) -> Iterator[Family]:
        families = {metric.name: _family(metric) for metric in self._metrics}
        for metric, (labels, value) in self._samples():
            families[metric.name].add_metric(list(labels), value)
        yield from families.values()


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    made = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    return made(metric.name, metric.help, labels=tuple(metric.labels))


#: Between two looks: often enough to see what lasts, seldom enough to cost nothing.
_LOOK_S: Final = 1.0


async def measure_loop(registry: Registry) -> None:
    """Sleep, and see how much longer it took, until cancelled."""
    lag = registry.histogram(LOOP_LAG)
    while True:
        due = anyio.current_time() + _LOOK_S
        await anyio.sleep_until(due)
        lag.observe(max(0.0, anyio.current_time() - due))


PATH: Final = "/metrics"
#: Nobody has anything to send.
_LARGEST_BODY_BYTES: Final = 1024


async def show(registry: Registry, listener: socket.socket | None) -> None:
    """Serve on a listening socket until cancelled; on none, do nothing."""
    if listener is None:
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(measure_loop, registry)
        tasks.start_soon(serve, app(registry), listener)


def app(registry: Registry) -> web.Application:
    """Return the route: GET and nothing else."""
    made = web.Application(client_max_size=_LARGEST_BODY_BYTES)
    made.router.add_get(PATH, make_aiohttp_handler(registry.collectors), allow_head=False)
    return made


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
        accept: str = JSON,
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
                accept=accept,
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
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch; see kube.client.transport.Transport."""
        return self._stream(path, query=query, accept=accept, timeout_s=timeout_s)

    @asynccontextmanager
    async def _stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        kind = (_WATCH, kind_of("GET", path)[1])
        is_open = False
        try:
            async with self._transport.stream(path, query=query, accept=accept, timeout_s=timeout_s) as (head, lines):
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
