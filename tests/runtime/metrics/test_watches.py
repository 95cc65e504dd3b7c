from __future__ import annotations

import random
from collections import deque

import anyio
import pytest

from kube.client.resources import PODS
from kube.watch.reflector import Reflector
from runtime.metrics.registry import Registry
from runtime.metrics.requests import count_watches, measured_lag
from tests.conftest import AnyioBackend
from tests.kube.scripted import ScriptedTransport, Watch, api_over, ok
from tests.kube.watch.test_reflector import Cache
from tests.kube.watch.test_watching import line
from tests.runtime.metrics.exposed import every_sample_once, value, values
from wire.core import ObjectMeta

OF_PODS = {"resource": "pods"}


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_reflectors_are_read_whenever_somebody_asks() -> None:
    bad = (
        b'{"type": "ADDED", "object": {"metadata": {"name": "b", "namespace": "x", "resourceVersion": "8"}, "spec": 7}}'
    )
    listed = ok({"metadata": {"resourceVersion": "5"}, "items": []})
    transport = ScriptedTransport(
        deque([listed]),
        deque([Watch([line("ADDED", {"metadata": {"name": "a", "namespace": "x", "resourceVersion": "7"}}), bad])]),
    )
    registry = Registry()
    reflector = Reflector(api_over(transport), PODS, Cache(), rng=random.Random(1))
    count_watches(registry, [reflector])
    assert value(registry, "moorage_watch_silence_seconds", OF_PODS) == float("inf")
    async with anyio.create_task_group() as tasks:
        await tasks.start(reflector.run)
        await anyio.sleep(30)
        assert value(registry, "moorage_watch_silence_seconds", OF_PODS) == 30
        assert value(registry, "moorage_watch_events_total", OF_PODS) == 2
        assert value(registry, "moorage_watch_lists_total", OF_PODS) == 1
        assert value(registry, "moorage_watch_unreadable_objects", OF_PODS) == 1
        tasks.cancel_scope.cancel()


async def test_two_that_watch_one_resource_are_one_series_with_the_longest_silence() -> None:
    def listed() -> ScriptedTransport:
        return ScriptedTransport(deque([ok({"metadata": {"resourceVersion": "5"}, "items": []})]), deque([Watch()]))

    everywhere, here = (
        Reflector(api_over(listed()), PODS, Cache(), namespace=namespace, rng=random.Random(1))
        for namespace in ("", "kai-scale-adjust")
    )
    registry = Registry()
    count_watches(registry, [everywhere, here])
    async with anyio.create_task_group() as tasks:
        await tasks.start(everywhere.run)
        await anyio.sleep(10)
        await tasks.start(here.run)
        await anyio.sleep(10)
        assert values(registry, "moorage_watch_silence_seconds") == {("pods",): 20}
        assert values(registry, "moorage_watch_lists_total") == {("pods",): 2}
        assert every_sample_once(registry)
        tasks.cancel_scope.cancel()


async def test_lag_is_counted_by_what_was_written() -> None:
    registry = Registry()
    lag = measured_lag(registry)
    lag.follow("pods")
    lag.wrote("pods", ObjectMeta(uid="u", resource_version="5"))
    await anyio.sleep(0.3)
    lag.shown("pods", ObjectMeta(uid="u", resource_version="5"))
    assert value(registry, "moorage_watch_lag_seconds_bucket", {**OF_PODS, "le": "0.1"}) == 0
    assert value(registry, "moorage_watch_lag_seconds_bucket", {**OF_PODS, "le": "0.5"}) == 1
