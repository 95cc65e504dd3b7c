from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import anyio

from simulator.clock import NumberedTask, VirtualTimeLoop

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
