"""What counting costs: what a component does more, for each thing that happens, than one that counts nothing.

Each row is the mean of many calls of the very code that processes run, over a transport that answers at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from prometheus_client import generate_latest

from admission.observing import Answered
from bench.core import used
from bench.result import Figures
from bench.sizes import Sizes
from binder.telemetry.observing import Stage as BindStage
from cli.metrics.binding import BindingCounted
from cli.metrics.registry import Registry
from cli.metrics.requests import CountedTransport
from cli.metrics.reviews import ReviewsCounted
from cli.metrics.scheduling import SchedulingCounted, show_standing
from cli.metrics.watches import measured_lag
from kube.client.resources import PODS
from kube.client.transport import Response
from scheduler.core.model.plan import Bind, Placement, Plan
from scheduler.report.standing import Standing
from scheduler.telemetry.observing import Ended, Stage
from scheduler.watch.cache import Cache
from wire.core import ObjectMeta

_CALLS = 20_000

NOTES = (
    "us: processor time that one of these takes more with metrics than without. request: of any kind, to the API "
    "server. write: of an object that is watched, until the watch shows it. event: one that a watch brings of others. "
    "direct: a pod that the scheduler binds, its requests left out. attempt: a pod that the binder binds, likewise.",
    "scrape: processor time to make the text of the scheduler's metrics; the event loop does nothing else meanwhile.",
)


class _AnswersAtOnce:
    """A transport for nothing but calls."""

    _answer = Response(201, {}, b"")

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
        return self._answer

    def stream(self, path: str, *, query: Mapping[str, str], timeout_s: float) -> Any:
        raise NotImplementedError


def measure(sizes: Sizes) -> Figures:
    """Every kind of thing that is counted, and a scrape."""
    return anyio.run(_measured, sizes)


async def _measured(sizes: Sizes) -> Figures:
    return Figures(
        sizes={"calls": _CALLS, "nodes": sizes.counted_nodes},
        notes=NOTES,
        figures={
            "request": {"us": await _request_us()},
            "write": {"us": _write_us()},
            "event": {"us": _event_us()},
            "direct": {"us": _direct_us()},
            "attempt": {"us": _attempt_us()},
            "review": {"us": _review_us()},
            "scrape": {"nodes": sizes.counted_nodes, "ms": _scrape_ms(sizes.counted_nodes)},
        },
    )


async def _request_us() -> float:
    bare = _AnswersAtOnce()
    counted = CountedTransport(bare, Registry())
    path = PODS.path("default", "a", "binding")

    async def ask(transport: _AnswersAtOnce | CountedTransport) -> None:
        await transport.request("POST", path, query={}, body=b"{}", timeout_s=1.0)

    without = await _mean_awaited_us(lambda: ask(bare))
    return round(await _mean_awaited_us(lambda: ask(counted)) - without, 2)


def _write_us() -> float:
    lag = measured_lag(Registry())
    lag.follow("pods")
    versions = iter([ObjectMeta(uid="u", resource_version=str(number)) for number in range(_CALLS)])

    def write() -> None:
        meta = next(versions)
        lag.wrote("pods", meta)
        lag.shown("pods", meta)

    return _mean_us(write)


def _event_us() -> float:
    lag = measured_lag(Registry())
    lag.follow("pods")
    others = [ObjectMeta(uid=f"u{number}", resource_version=str(number)) for number in range(_CALLS)]
    events = iter(others)
    return _mean_us(lambda: lag.shown("pods", next(events)))


def _direct_us() -> float:
    counted = SchedulingCounted(Registry())
    plan = Plan(entries=(Bind(Placement(pod_uid="u", namespace="n", name="p", rv="1", node="x")),))

    def place() -> None:
        counted.decided(plan)
        for stage in (Stage.DECIDE, Stage.CHARGE, Stage.BIND):
            counted.took(stage, 0.002)
        counted.ended(Ended.BOUND)
        counted.bound(0.1)

    return _mean_us(place)


def _attempt_us() -> float:
    counted = BindingCounted(Registry())
    stages = (BindStage.JOIN, BindStage.LEARN, BindStage.VERIFY, BindStage.BIND, BindStage.TELL_BOUND, BindStage.DROP)

    def bind() -> None:
        for stage in stages:
            counted.took(stage, 0.02)
        counted.ended(None, 1.0)

    return _mean_us(bind)


def _review_us() -> float:
    counted = ReviewsCounted(Registry())
    return _mean_us(lambda: counted.reviewed("mutate", Answered.PATCHED, 0.001))


def _scrape_ms(nodes: int) -> float:
    registry = Registry()
    SchedulingCounted(registry)
    standing = Standing(Cache(used(nodes, random.Random(1))), {})
    standing.is_leading = True
    show_standing(registry, standing)
    generate_latest(registry.collectors)
    began = time.process_time()
    for _ in range(10):
        generate_latest(registry.collectors)
    return round((time.process_time() - began) / 10 * 1e3, 1)


def _mean_us(call: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(_CALLS):
        call()
    return round((time.process_time() - began) / _CALLS * 1e6, 2)


async def _mean_awaited_us(call: Callable[[], Awaitable[None]]) -> float:
    began = time.process_time()
    for _ in range(_CALLS):
        await call()
    return (time.process_time() - began) / _CALLS * 1e6
