from __future__ import annotations

import contextlib
import random
from collections import deque

import anyio
import pytest
from prometheus_client.exposition import generate_latest

from kube.client.errors import Timeout, Unreachable
from kube.client.resources import BIND_REQUESTS, LEASES, NODES, PODS
from kube.client.transport import Response
from kube.watch.reflector import Reflector
from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.overuse import MIB, Device, Process, Sample
from nodeagent.core.enforcement.tenants import Measures, measures
from runtime.metrics.nodeagent import TENANTS, show_tenants
from runtime.metrics.registry import CountedTransport, Registry, count_watches, kind_of, measured_lag
from tests.kube.scripted import Request, ScriptedTransport, Watch, api_over, ok
from tests.kube.watch.test_reflector import Cache, line
from tests.runtime.metrics.exposed import every_sample_once, value, values
from wire.core import ObjectMeta

VIRTUAL_TIME = True


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", PODS.path(), ("list", "pods")),
        ("GET", PODS.path("default"), ("list", "pods")),
        ("GET", PODS.path("default", "a"), ("get", "pods")),
        ("POST", PODS.path("default"), ("create", "pods")),
        ("POST", PODS.path("default", "a", "binding"), ("create", "pods/binding")),
        ("POST", PODS.path("default", "a", "eviction"), ("create", "pods/eviction")),
        ("PATCH", PODS.path("default", "a", "status"), ("patch", "pods/status")),
        ("PATCH", LEASES.path("kai-scheduler", "moorage-binder"), ("patch", "leases")),
        ("DELETE", BIND_REQUESTS.path("default", "a"), ("delete", "bindrequests")),
        ("GET", NODES.path(), ("list", "nodes")),
        ("GET", NODES.path("", "n"), ("get", "nodes")),
        ("PATCH", NODES.path("", "n"), ("patch", "nodes")),
        ("GET", "/api/v1/namespaces", ("list", "namespaces")),
        ("GET", "/api/v1/namespaces/default", ("get", "namespaces")),
        ("GET", "/version", ("get", "other")),
        ("GET", "/", ("get", "other")),
    ],
)
def test_a_request_is_told_by_its_kind_and_never_by_a_name(method: str, path: str, kind: tuple[str, str]) -> None:
    assert kind_of(method, path) == kind


async def test_every_try_is_counted_by_how_it_ended() -> None:
    async def slowly(_: Request) -> Response:
        await anyio.sleep(0.3)
        return Response(201, {}, b"")

    bare = ScriptedTransport(
        deque([slowly, Response(409, {}, b""), Response(409, {}, b""), Timeout("late"), Unreachable("gone")])
    )
    registry = Registry()
    transport = CountedTransport(bare, registry)
    for _ in range(5):
        with contextlib.suppress(Unreachable):
            await transport.request("POST", PODS.path("default", "a", "binding"), query={}, body=b"{}", timeout_s=1)
    assert values(registry, "moorage_api_requests_total") == {
        ("201", "pods/binding", "create"): 1,
        ("409", "pods/binding", "create"): 2,
        ("timeout", "pods/binding", "create"): 1,
        ("unreachable", "pods/binding", "create"): 1,
    }
    binding = {"verb": "create", "resource": "pods/binding"}
    assert value(registry, "moorage_api_request_duration_seconds_count", binding) == 3
    assert value(registry, "moorage_api_request_duration_seconds_bucket", {**binding, "le": "0.2"}) == 2
    assert value(registry, "moorage_api_request_duration_seconds_sum", binding) == pytest.approx(0.3)


async def _read(transport: CountedTransport) -> None:
    async with transport.stream(PODS.path(), query={}, timeout_s=1) as (_, lines):
        async for _ in lines:
            pass


async def test_a_watch_is_counted_when_it_opens_and_not_again_when_it_breaks() -> None:
    bare = ScriptedTransport(
        watches=deque([Watch(end=Unreachable("cut")), Watch(head=Response(410, {}, b""), end="eof")])
    )
    registry = Registry()
    transport = CountedTransport(bare, registry)
    with pytest.raises(Unreachable):
        await _read(transport)
    async with transport.stream(PODS.path(), query={}, timeout_s=1) as (head, _):
        assert head.status == 410
    assert values(registry, "moorage_api_requests_total") == {("200", "pods", "watch"): 1, ("410", "pods", "watch"): 1}


OF_PODS = {"resource": "pods"}


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


def shown(measured: Measures, kills: dict[tuple[str, bool], int]) -> set[str]:
    registry = Registry()
    show_tenants(registry, lambda: measured, lambda: kills)
    assert {metric.name for metric in registry.metrics} == {metric.name for metric in TENANTS}
    lines = generate_latest(registry.collectors).decode().splitlines()
    return {line for line in lines if line.startswith("moorage_")}


def test_gpus_and_tenants_are_shown_as_they_were_measured() -> None:
    held = [
        Tenancy("uid-p", "team/p", "GPU-1", 250_000_000, 1000, 1500),
        Tenancy("uid-q", "team/q", "GPU-1", 500_000_000, 2000),
    ]
    mine = Process(1, 1, 900 * MIB, 10, "uid-p"), Process(2, 1, 100 * MIB, 20, "uid-p"), Process(3, 1, MIB, None, "")
    sample = Sample(2_400 * 10**9, (Device("GPU-1", 4000 * MIB, 1001 * MIB, mine, 40),))
    found = measures(sample, held, {("uid-q", "GPU-1"): 300 * 10**9, ("uid-p", "GPU-1"): None})
    card, p, q = (
        '{uuid="GPU-1"}',
        *(f'{{namespace="team",pod="{name}",pod_uid="uid-{name}",uuid="GPU-1"}}' for name in "pq"),
    )
    assert shown(found, {("largest", True): 2, ("all", False): 1}) == {
        f"moorage_gpu_memory_total_bytes{card} 4.194304e+09",
        f"moorage_gpu_memory_used_bytes{card} 1.049624576e+09",
        f"moorage_gpu_utilization_ratio{card} 0.4",
        f"moorage_gpu_asked_nano{card} 7.5e+08",
        f"moorage_unattributed_memory_bytes{card} 1.048576e+06",
        f"moorage_tenant_memory_used_bytes{p} 1.048576e+09",
        f"moorage_tenant_memory_asked_bytes{p} 1.048576e+09",
        f"moorage_tenant_memory_cap_bytes{p} 1.572864e+09",
        f"moorage_tenant_sm_ratio{p} 0.3",
        f"moorage_tenant_sm_of_share_ratio{p} 1.2",
        f"moorage_tenant_asked_nano{p} 2.5e+08",
        f"moorage_tenant_processes{p} 2.0",
        f"moorage_tenant_memory_used_bytes{q} 0.0",
        f"moorage_tenant_memory_asked_bytes{q} 2.097152e+09",
        f"moorage_tenant_sm_ratio{q} 0.0",
        f"moorage_tenant_sm_of_share_ratio{q} 0.0",
        f"moorage_tenant_asked_nano{q} 5e+08",
        f"moorage_tenant_processes{q} 0.0",
        f"moorage_tenant_idle_seconds{q} 2100.0",
        'moorage_memory_enforcer_kills_total{dry_run="true",processes="largest"} 2.0',
        'moorage_memory_enforcer_kills_total{dry_run="false",processes="all"} 1.0',
    }


def test_without_an_enforcer_nothing_is_shown() -> None:
    assert shown(Measures(), {}) == set()


def test_no_metric_of_a_component_has_one_of_these_names() -> None:
    from runtime.metrics.declared import COMPONENTS  # noqa: PLC0415 - for this test alone

    names = {metric.name for metrics in COMPONENTS.values() for metric in metrics}
    assert not names & {metric.name for metric in TENANTS}
