"""One running incarnation after another of a component, each with a connection of its own, and what may befall it.

A crash is: its connection goes dead at once, then its tasks are dropped. What they do while they are cancelled
reaches nobody, as if the process had been killed. A pause is SIGSTOP and SIGCONT: nothing of it runs meanwhile, not
even its timers. One that is cut off goes on running, and messages from it and to it are held back.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus
from typing_extensions import override

from kube.memory.transport import MemoryTransport
from simulator.virtualtime import Stoppable

#: A timer may fire this much before its time: sums of floating-point seconds.
_EARLY_S: Final = 1e-6
#: A process that ended unasked is started again after this time, as kubelet does it the first time.
_RESTART_S: Final = 1.0


class Run(Protocol):
    """Runs a component on a connection; started when it is ready to work."""

    def __call__(
        self, transport: MemoryTransport, stop: anyio.Event, *, task_status: TaskStatus[None]
    ) -> Awaitable[None]:
        """Run until cancelled, until it has ended in order because ``stop`` was set, or until it ends on its own."""
        ...


class _Ready(TaskStatus[None]):
    """Tells who started a component that it is ready: at most once in fact, however often it says so."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    @override
    def started(self, value: None = None) -> None:
        self.event.set()


class Component:
    """A replica of the scheduler or the binder of a simulated cluster."""

    def __init__(self, name: str, *, connect: Callable[[], MemoryTransport], run: Run) -> None:
        self.name = name
        self.incarnations = 0
        #: Whether it is of an older version, which can't read all that there is: its ledger is no recount of it.
        self.is_older = False
        self._connect = connect
        self._run = run
        self._process = Stoppable()
        self._paused_until = self._cut_until = 0.0
        self._transport: MemoryTransport | None = None
        self._scope: anyio.CancelScope | None = None
        self._stop = anyio.Event()
        self._ended = anyio.Event()

    @property
    def is_running(self) -> bool:
        """Whether an incarnation lives."""
        return self._scope is not None

    @property
    def is_in_touch(self) -> bool:
        """Whether an incarnation lives, runs, and nothing parts it from the API server."""
        is_parted = asyncio.get_running_loop().time() <= self._cut_until
        return self.is_running and not self._process.is_stopped and not is_parted

    async def start(self, group: TaskGroup) -> None:
        """Start it and wait until it is ready to work, or was killed before it was."""
        ready = _Ready()
        group.start_soon(self._live, ready, name=f"{self.name} {self.incarnations + 1}")
        await ready.event.wait()

    def crash(self) -> None:
        """Kill the incarnation, be it paused or not."""
        if self._transport is not None:
            self._transport.kill()
        self._go_on()
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def stop(self) -> None:
        """Tell it to end, as SIGTERM does, and wait until it has; it stays down."""
        self._stop.set()
        if self.is_running:
            await self._ended.wait()

    def pause(self, duration_s: float) -> None:
        """Stop it at any point, and let it go on after a time."""
        if not self.is_running:
            return
        loop = asyncio.get_running_loop()
        self._paused_until = max(self._paused_until, loop.time() + duration_s)
        self._process.stop()
        # In a context that is nobody's: what strikes a component may run in its own, as a rule about its requests does.
        loop.call_later(duration_s, self._go_on_when_over, context=contextvars.Context())

    def cut_off(self, duration_s: float) -> None:
        """Part it from the API server for a time, and all that is started in its place."""
        loop = asyncio.get_running_loop()
        self._cut_until = max(self._cut_until, loop.time() + duration_s)
        if self._transport is not None:
            self._transport.cut()
        loop.call_later(duration_s, self._mend_when_over, context=contextvars.Context())

    def _go_on_when_over(self) -> None:
        if self._process.is_stopped and asyncio.get_running_loop().time() >= self._paused_until - _EARLY_S:
            self._go_on()

    def _go_on(self) -> None:
        self._paused_until = 0.0
        if self._process.is_stopped:
            self._process.go_on()

    def _mend_when_over(self) -> None:
        if self._transport is not None and asyncio.get_running_loop().time() >= self._cut_until - _EARLY_S:
            self._transport.mend()

    async def _live(self, ready: _Ready) -> None:
        """Run one incarnation after another until killed, or told to end."""
        self._process.enter()
        self._stop, self._ended = anyio.Event(), anyio.Event()
        with anyio.CancelScope() as scope:
            self._scope = scope
            while True:
                self.incarnations += 1
                await self._run(self._connection(), self._stop, task_status=ready)
                if self._stop.is_set():
                    break
                await anyio.sleep(_RESTART_S)
        if self._scope is scope:
            self._scope = None
            self._ended.set()
        ready.started()

    def _connection(self) -> MemoryTransport:
        if self._transport is not None:
            self._transport.kill()
        self._transport = self._connect()
        if asyncio.get_running_loop().time() < self._cut_until - _EARLY_S:
            self._transport.cut()
        return self._transport
