"""Virtual time: an event loop on which an hour passes at once, components that stop on it, and clocks that go with it.

Everything of ours sleeps and times out through the event loop's clock, so on this loop the real scheduler, binder and
reflectors run through hours of a cluster's life as fast as the processor goes, and in every run in the same order.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import selectors
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVarTuple, Unpack, cast

from anyio._backends import _asyncio as backend
from typing_extensions import override

from kube.client.clock import Clock
from wire.units import SECOND_NS

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
    """Have the loop number its tasks from 0. Tasks and scopes of other loops stay as they are.

    anyio keeps the tasks of a cancel scope, and the scopes within it, in sets, and cancels them in the order of those
    sets. A task's hash is its address in memory, so that order would be chance: the same seed would be two runs. Here a
    task's hash is its number, and a scope's that of the task which entered it.
    """
    numbers = itertools.count()

    def made(loop: asyncio.AbstractEventLoop, coroutine: _Runnable, **options: Any) -> NumberedTask:
        return NumberedTask(next(numbers), coroutine, loop=loop, **options)

    loop.set_task_factory(made)


def _hash(scope: backend.CancelScope) -> int:
    # A scope's siblings were entered by other tasks: a task's own further scopes lie within its first.
    task = scope._host_task  # noqa: SLF001 - anyio says nowhere else which task entered a scope
    return hash(task) if isinstance(task, NumberedTask) else object.__hash__(scope)


backend.CancelScope.__hash__ = _hash  # type: ignore[method-assign, assignment]


if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike


Ts = TypeVarTuple("Ts")


class Deadlock(RuntimeError):
    """Raised when nothing on the loop is ready and no timer is set: the tasks would wait for ever."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs on virtual seconds that start at 0: when nothing is ready it jumps to the next timer instead of sleeping.

    Timers fire by due time. Equal ones fire in the order of asyncio's heap, which is not that of their setting, but the
    same in every run. Time does not pass while code runs. What waits for the outside (sockets, subprocesses, threads)
    would wait while the clock races on: threads are refused, and a wait that nothing on the loop can end raises
    Deadlock at once, naming the tasks.

    With anyio: ``anyio.run(main, backend_options={"loop_factory": VirtualTimeLoop})``.
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        self._owner = threading.get_ident()
        super().__init__(_JumpingSelector(self._jump))
        number_tasks(self)

    @override
    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    @override
    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call back in the next turn, or when its Stoppable goes on."""
        context = contextvars.copy_context() if context is None else context
        whole = context.get(_running_in)
        if whole is None or not whole.is_stopped:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        return whole.hold(handle, functools.partial(callback, *args), context)

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at a time, or when its Stoppable goes on after that."""
        context = contextvars.copy_context() if context is None else context
        whole = context.get(_running_in)
        if whole is None:
            return super().call_at(when, callback, *args, context=context)
        timer = _Timer(whole, functools.partial(callback, *args), context)
        timer.handle = super().call_at(when, timer.fire, context=context)
        return timer.handle

    def spend(self, seconds: float) -> None:
        """Let time pass while nothing on the loop runs, as if the caller had kept the processor busy."""
        self._now_s += seconds

    @override
    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Refuse other threads: how far the clock has raced while they worked would be chance."""
        if threading.get_ident() != self._owner:
            raise RuntimeError("a virtual-time loop does not work with threads: do the work on the loop")
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _jump(self, timeout_s: float | None) -> None:
        """Advance to the next timer, which is ``timeout_s`` away (None: there is none)."""
        if timeout_s is None:
            raise Deadlock(f"nothing is ready and no timer is set; waiting: {self._waiting()}")
        self._now_s += timeout_s

    def _waiting(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return "; ".join(f"{task.get_name()} at {_place(task)}" for task in tasks) or "no task"


class Stoppable:
    """All that runs in its context can be stopped and continued, as SIGSTOP and SIGCONT do to a process.

    A task that calls ``enter``, and all that it starts from then on, run in it. While it is stopped nothing of it runs
    and its timers don't fire. When it goes on, it first hears what came meanwhile, then all timers that are due, as an
    event loop does that was not given the processor for a while.
    """

    def __init__(self) -> None:
        self.is_stopped = False
        self._heard: list[_Held] = []
        self._due: list[_Held] = []

    def enter(self) -> None:
        """Have the current task, and all that it starts from now on, run in this."""
        _running_in.set(self)

    def stop(self) -> None:
        """Run nothing more of it. Raises RuntimeError on a loop that is not of virtual time."""
        is_virtual = isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
        if not is_virtual:
            raise RuntimeError("only a virtual-time loop can stop what runs on it")
        self.is_stopped = True

    def go_on(self) -> None:
        """Run it again."""
        self.is_stopped = False
        held = [*self._heard, *self._due]
        self._heard.clear()
        self._due.clear()
        loop = asyncio.get_running_loop()
        for each in held:
            loop.call_soon(each.run, context=each.context)

    def hold(self, handle: asyncio.Handle, run: Callable[[], object], context: contextvars.Context) -> asyncio.Handle:
        """Keep what would run now until it goes on, unless its handle is cancelled by then."""
        held = self._due if isinstance(handle, asyncio.TimerHandle) else self._heard
        held.append(_Held(handle, run, context))
        return handle


class _Held:
    """A callback that would have run by now."""

    def __init__(self, handle: asyncio.Handle, run: Callable[[], object], context: contextvars.Context) -> None:
        self._handle = handle
        self._run = run
        self.context = context

    def run(self) -> None:
        if not self._handle.cancelled():
            self._run()


class _Timer:
    """A timer of a Stoppable."""

    handle: asyncio.TimerHandle

    def __init__(self, whole: Stoppable, run: Callable[[], object], context: contextvars.Context) -> None:
        self._whole = whole
        self._run = run
        self._context = context

    def fire(self) -> None:
        if self._whole.is_stopped:
            self._whole.hold(self.handle, self._run, self._context)
        else:
            self._run()


_running_in: contextvars.ContextVar[Stoppable | None] = contextvars.ContextVar("_running_in", default=None)


class VirtualClock:
    """Wall time (kube.client.clock.Clock) that goes with a virtual-time loop: ``epoch_ns`` at the loop's 0."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, epoch_ns: int = 1_767_225_600_000_000_000) -> None:
        self._loop = loop
        self._epoch_ns = epoch_ns

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC; 2026-01-01T00:00:00Z at the loop's 0 by default."""
        return self._epoch_ns + round(self._loop.time() * SECOND_NS)


def _place(task: asyncio.Task[Any]) -> str:
    """Where a task waits: ``file:line in function`` of its innermost own frame."""
    coroutine: Any = task.get_coro()
    place = "its start"
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        coroutine = coroutine.cr_await
    return place


class _JumpingSelector(selectors.BaseSelector):
    """Polls the real selector without waiting; a wait becomes a jump of the clock.

    It does not poll where there is one file only, the loop's own pipe: that wakes a loop that waits, and this one never
    waits.
    """

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        self._real = selectors.DefaultSelector()
        self._jump = jump
        self._files = 0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0) if self._files > 1 else []
        if not ready and (timeout is None or timeout > 0):
            self._jump(timeout)
        return ready

    @override
    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._real.register(fileobj, events, data)
        self._files += 1
        return key

    @override
    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        key = self._real.unregister(fileobj)
        self._files -= 1
        return key

    @override
    def close(self) -> None:
        self._real.close()

    @override
    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()


@dataclass(slots=True)
class SkewedClock:
    """Wall time (kube.client.clock.Clock) of one component, ``ahead_ns`` before the true one; negative: it is behind.

    It may be changed at any time: that is a jump of the clock. The event loop's own time never jumps, as a machine's
    monotonic clock doesn't.
    """

    true: Clock
    ahead_ns: int = 0

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC, as this clock believes."""
        return self.true.now_ns() + self.ahead_ns
