"""Work that runs beside a test and ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def in_background(*work: Callable[[], Coroutine[Any, Any, object]]) -> AsyncIterator[TaskGroup]:
    """Start these beside the block, and cancel them at its end; others may be started in the task group."""
    async with anyio.create_task_group() as tasks:
        for each in work:
            tasks.start_soon(each)
        yield tasks
        tasks.cancel_scope.cancel()
