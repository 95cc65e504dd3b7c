"""One order of tasks for every process: the numbers in which an event loop made them.

anyio keeps the tasks of a cancel scope, and the scopes within it, in sets, and cancels them in the order of those
sets. A task's hash is its address in memory unless something is done about it, so that order would be chance: the same
seed would be two runs. Here a task's hash is its number, and a scope's that of the task which entered it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Generator
from typing import Any, TypeAlias, cast

from anyio._backends import _asyncio as backend
from typing_extensions import override

_Runnable: TypeAlias = Coroutine[Any, Any, Any] | Generator[Any, None, Any]


class NumberedTask(asyncio.Task[Any]):
    """A task that knows its number on its loop and hashes to it."""

    def __init__(self, number: int, coroutine: _Runnable, **options: Any) -> None:
        self._number = number
        super().__init__(cast("Coroutine[Any, Any, Any]", coroutine), **options)

    @override
    def __hash__(self) -> int:
        return self._number


def number_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop number its tasks from 0. Tasks and scopes of other loops stay as they are."""
    numbers = itertools.count()

    def made(loop: asyncio.AbstractEventLoop, coroutine: _Runnable, **options: Any) -> NumberedTask:
        return NumberedTask(next(numbers), coroutine, loop=loop, **options)

    loop.set_task_factory(made)


def _hash(scope: backend.CancelScope) -> int:
    # A scope's siblings were entered by other tasks: a task's own further scopes lie within its first.
    task = scope._host_task  # noqa: SLF001 - anyio says nowhere else which task entered a scope
    return hash(task) if isinstance(task, NumberedTask) else object.__hash__(scope)


backend.CancelScope.__hash__ = _hash  # type: ignore[method-assign, assignment]
