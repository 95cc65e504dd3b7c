"""What a process counts, by declaration, and where it shows that: ``/metrics``, as Prometheus reads it.

Each process also shows how late its event loop is: a delay there delays everything, leases included.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import anyio
from aiohttp import web
from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry
from typing_extensions import override

from kube.serving import serve
from runtime.metrics.declared import LOOP_LAG, Kind, Metric

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
