"""One running incarnation after another of a component, each with a connection of its own, so that it can crash.

A crash is: its connection goes dead at once, then its tasks are dropped. What they do while they are cancelled
reaches nobody, as if the process had been killed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from kube.memory.transport import MemoryTransport


class Run(Protocol):
    """Runs a component on a connection; started when it is ready to work."""

    def __call__(self, transport: MemoryTransport, *, task_status: TaskStatus[None]) -> Awaitable[None]:
        """Run until cancelled."""
        ...


class Component:
    """The scheduler or the binder of a simulated cluster."""

    def __init__(self, name: str, *, connect: Callable[[], MemoryTransport], run: Run) -> None:
        self.name = name
        self.incarnations = 0
        self._connect = connect
        self._run = run
        self._transport: MemoryTransport | None = None
        self._scope: anyio.CancelScope | None = None

    @property
    def is_running(self) -> bool:
        """Whether an incarnation lives."""
        return self._scope is not None

    async def start(self, group: TaskGroup) -> None:
        """Start a new incarnation and wait until it works."""
        self._transport = self._connect()
        self.incarnations += 1
        await group.start(self._live, self._transport, name=f"{self.name} {self.incarnations}")

    def crash(self) -> None:
        """Kill the incarnation."""
        if self._transport is not None:
            self._transport.kill()
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def _live(
        self, transport: MemoryTransport, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.CancelScope() as scope:
            self._scope = scope
            await self._run(transport, task_status=task_status)
