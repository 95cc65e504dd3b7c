from __future__ import annotations

import contextlib
from collections import deque

import anyio
import pytest

from kube.client.errors import Timeout, Unreachable
from kube.client.resources import BIND_REQUESTS, LEASES, NODES, PODS
from kube.client.transport import Response
from runtime.metrics.registry import Registry
from runtime.metrics.requests import CountedTransport, kind_of
from tests.conftest import AnyioBackend
from tests.kube.scripted import Request, ScriptedTransport, Watch
from tests.runtime.metrics.exposed import value, values


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


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
    assert values(registry, "moorage_api_requests_total") == {
        ("200", "pods", "watch"): 1,
        ("410", "pods", "watch"): 1,
    }
