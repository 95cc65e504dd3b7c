from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from simulator.clock import Deadlock, VirtualClock, VirtualTimeLoop
from tests.conftest import AnyioBackend
from wire.rfc3339 import rfc3339


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_an_hour_passes_at_once() -> None:
    real, virtual = time.monotonic(), anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() - virtual == pytest.approx(3600, abs=1e-6)
    assert time.monotonic() - real < 60


async def test_a_week_passes_although_the_loop_waits_a_day_at_most() -> None:
    virtual = anyio.current_time()
    await anyio.sleep(7 * 86_400)
    assert anyio.current_time() - virtual == pytest.approx(7 * 86_400, abs=1e-6)


async def test_sleepers_wake_by_due_time() -> None:
    woken: list[str] = []

    async def sleeper(name: str, delay_s: float) -> None:
        await anyio.sleep(delay_s)
        woken.append(name)

    async with anyio.create_task_group() as group:
        for name, delay_s in [("c", 30), ("a", 10), ("e", 30.001), ("b", 20), ("d", 30.0005)]:
            group.start_soon(sleeper, name, delay_s)
    assert woken == ["a", "b", "c", "d", "e"]


async def test_time_stands_still_while_code_runs() -> None:
    before = anyio.current_time()
    for _ in range(1000):
        await anyio.lowlevel.checkpoint()
    assert anyio.current_time() == before


async def test_a_time_out_ends_what_would_never_end() -> None:
    before = anyio.current_time()
    with anyio.move_on_after(15) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() - before == pytest.approx(15, abs=1e-6)


async def test_the_wall_clock_goes_with_the_loop() -> None:
    loop = asyncio.get_running_loop()
    clock = VirtualClock(loop, epoch_ns=1_767_225_600_000_000_000 - round(loop.time() * 1e9))
    await anyio.sleep(90)
    assert rfc3339(clock.now_ns()) == "2026-01-01T00:01:30Z"


def run(main: Any) -> Any:
    return anyio.run(main, backend_options={"loop_factory": VirtualTimeLoop})


def test_two_runs_see_the_same_times() -> None:
    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def tick(name: str, period_s: float) -> None:
            for _ in range(20):
                await anyio.sleep(period_s)
                seen.append((name, anyio.current_time()))

        async with anyio.create_task_group() as group:
            for name, period_s in [("a", 0.25), ("b", 0.5), ("c", 0.5), ("d", 0.75)]:
                group.start_soon(tick, name, period_s)
        return seen

    first, second = run(main), run(main)
    assert len(first) == 80
    assert first == second


def test_a_wait_that_nothing_can_end_is_a_deadlock_that_names_its_task() -> None:
    async def waits_for_nobody() -> None:
        await anyio.Event().wait()

    with pytest.raises(Deadlock, match=r"no timer is set; waiting: .*in Event\.wait"):
        run(waits_for_nobody)


def test_waiting_for_a_socket_is_a_deadlock_not_a_hang() -> None:
    async def waits_for_the_outside() -> None:
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            await asyncio.get_running_loop().sock_recv(near, 1)

    with pytest.raises(Deadlock):
        run(waits_for_the_outside)


def test_another_thread_is_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        refusals: list[BaseException] = []

        def call_from_outside() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except RuntimeError as refusal:
                refusals.append(refusal)

        thread = threading.Thread(target=call_from_outside)
        thread.start()
        thread.join()
        assert "does not work with threads" in str(refusals[0])

    run(main)
