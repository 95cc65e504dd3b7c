from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import aiohttp
import anyio
import pytest

from kube.serving import serve
from runtime.health import ENDING, STARTING, Health
from tests.cli.given import options


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def base(health: Health) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, health.app(), listener)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        tasks.cancel_scope.cancel()


async def asked(base: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(base + path) as response:
        return response.status, await response.text()


async def test_a_replica_is_ready_from_when_it_is_in_step_until_it_is_told_to_end(health: Health, base: str) -> None:
    assert await asked(base, "/readyz") == (503, STARTING)
    health.started()
    assert await asked(base, "/readyz") == (200, "ok")
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(health.end_with, stop)
        stop.set()
    assert await asked(base, "/readyz") == (503, ENDING)


def test_who_is_in_step_does_what_it_was_told_to_do_then() -> None:
    called: list[str] = []
    health = Health(lambda: called.append("now"))
    assert called == []
    health.started()
    assert called == ["now"]


async def test_it_is_alive_while_it_can_answer(health: Health, base: str) -> None:
    assert await asked(base, "/healthz") == (200, "ok")
    assert (await asked(base, "/metrics"))[0] == 404


@pytest.mark.parametrize("component", ["scheduler", "binder"])
def test_it_is_asked_nowhere_unless_an_address_is_given(component: str) -> None:
    assert options(component).health_probe_bind_address is None
    given = ["--health-probe-bind-address=:8081"]
    assert options(component, given).health_probe_bind_address == ("", 8081)
