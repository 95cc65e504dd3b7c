"""Health, memory and progress of a process, and durations."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import aiohttp
import anyio
import pytest

from kube.serving import serve
from runtime import text as durations
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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("30", 30), ("30s", 30), ("250ms", 0.25), ("1.5m", 90), ("2h", 7200), ("1h30m", 5400), ("1m0.5s", 60.5)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert durations.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1s", "1d", "s", "1e3", "1 s", "9000h", "1h30", "5000h5000h", "\u0661s"])
def test_what_is_no_duration_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="250ms, 30s, 5m, 1h") as caught:
        durations.seconds(text)
    assert repr(text) in str(caught.value)
