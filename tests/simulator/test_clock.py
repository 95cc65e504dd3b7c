"""The clock of a simulation, and the order in which its tasks run."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from simulator.clock import Deadlock, NumberedTask, VirtualClock, VirtualTimeLoop
from wire.rfc3339 import rfc3339

VIRTUAL_TIME = True


async def test_an_hour_passes_at_once() -> None:
    real, virtual = time.monotonic(), anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() - virtual == pytest.approx(3600, abs=1e-6)
    assert time.monotonic() - real < 60


async def test_sleepers_wake_by_due_time() -> None:
    woken: list[str] = []

    async def sleeper(name: str, delay_s: float) -> None:
        await anyio.sleep(delay_s)
        woken.append(name)

    async with anyio.create_task_group() as group:
        for name, delay_s in [("c", 30), ("a", 10), ("e", 30.001), ("b", 20), ("d", 30.0005)]:
            group.start_soon(sleeper, name, delay_s)
    assert woken == ["a", "b", "c", "d", "e"]


async def test_the_wall_clock_goes_with_the_loop() -> None:
    loop = asyncio.get_running_loop()
    clock = VirtualClock(loop, epoch_ns=1_767_225_600_000_000_000 - round(loop.time() * 1e9))
    await anyio.sleep(90)
    assert rfc3339(clock.now_ns()) == "2026-01-01T00:01:30Z"


def run(main: Any) -> Any:
    return anyio.run(main, backend_options={"loop_factory": VirtualTimeLoop})


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


#: Enough that two orders by chance are never equal.
_TASKS = 200


def _order_of_cancellation(loop: Callable[[], asyncio.AbstractEventLoop]) -> list[str]:
    """The order in which the tasks of a cancelled group end: every second one waits within a scope of its own."""
    ended: list[str] = []

    async def waits(name: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    async def waits_in_a_scope(name: str) -> None:
        with anyio.CancelScope():
            await waits(name)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for number in range(0, _TASKS, 2):
                group.start_soon(waits, f"plain {number}")
                group.start_soon(waits_in_a_scope, f"scoped {number + 1}")
            await anyio.sleep(1)
            group.cancel_scope.cancel()

    anyio.run(main, backend_options={"loop_factory": loop})
    return ended


def test_a_cancelled_group_ends_in_one_order_wherever_its_tasks_lie_in_memory() -> None:
    orders: list[list[str]] = []
    elsewhere: list[list[bytearray]] = []
    for seed in range(5):
        sizes = random.Random(seed)
        elsewhere.append([bytearray(sizes.randrange(1, 2000)) for _ in range(1000)])
        orders.append(_order_of_cancellation(VirtualTimeLoop))
    assert len(orders[0]) == _TASKS
    assert all(order == orders[0] for order in orders)


def test_scopes_of_other_loops_keep_their_hash() -> None:
    hashes: list[tuple[int, int]] = []

    async def main() -> None:
        async with anyio.create_task_group() as group:
            scope = group.cancel_scope
            hashes.append((hash(scope), object.__hash__(scope)))
            assert not isinstance(asyncio.current_task(), NumberedTask)

    anyio.run(main)
    assert hashes[0][0] == hashes[0][1]
