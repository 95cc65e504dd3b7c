"""Work that runs beside a test and ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def in_background(*work: Callable[[], Awaitable[object]]) -> AsyncIterator[TaskGroup]:
    """Start these beside the block, and cancel them at its end; others may be started in the task group."""
    async with anyio.create_task_group() as tasks:
        for each in work:
            tasks.start_soon(each)
        yield tasks
        tasks.cancel_scope.cancel()
