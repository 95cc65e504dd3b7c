from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator

import aiohttp
import anyio
import anyio.lowlevel
import pytest

from runtime.metrics.declared import COMPONENTS, LEADER
from runtime.metrics.registry import Registry, show
from tests.cli.given import options
from tests.runtime.metrics.exposed import series, value


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def base(registry: Registry) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(show, registry, listener)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        tasks.cancel_scope.cancel()


async def test_metrics_are_shown_at_their_path_as_prometheus_reads_them(registry: Registry, base: str) -> None:
    leads = [1.0]
    registry.read_one(LEADER, lambda: leads[0])
    async with aiohttp.ClientSession() as session:
        for expected in (1.0, 0.0):
            leads[0] = expected
            async with session.get(f"{base}/metrics") as response:
                assert response.status == 200
                assert response.headers["Content-Type"].startswith("text/plain; version=")
                shown = series(await response.text())
            assert shown["moorage_leader", frozenset()] == expected
            assert shown["process_resident_memory_bytes", frozenset()] > 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/metrics", 405), ("HEAD", "/metrics", 405), ("GET", "/", 404), ("GET", "/healthz", 404)],
)
async def test_nothing_else_is_there(base: str, method: str, path: str, status: int) -> None:
    async with aiohttp.ClientSession() as session, session.request(method, base + path) as response:
        assert response.status == status


async def test_without_an_address_nothing_is_served_nor_looked_at(registry: Registry) -> None:
    await show(registry, None)
    assert registry.metrics == []


@pytest.mark.thorough
async def test_a_loop_that_was_held_up_is_seen_to_have_been_late(registry: Registry, base: str) -> None:
    assert base
    await anyio.lowlevel.checkpoint()
    time.sleep(1.5)  # noqa: ASYNC251 - this holds it up
    with anyio.fail_after(60):
        # There may be looks that were not late before it.
        while (value(registry, "moorage_event_loop_lag_seconds_sum") or 0.0) < 0.4:  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.01)


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_address_is_given_by_kais_flag_and_there_is_none_by_default(component: str) -> None:
    assert options(component).metrics_bind_address is None
    assert options(component, ["--metrics-bind-address=:8080"]).metrics_bind_address == ("", 8080)
