"""Asking a driver in a thread, one question at a time.

A question that is given up is not over: its thread is in the driver still, and may change a GPU later. So the next
question is not asked before that thread has ended. A driver that hangs costs one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

_T = TypeVar("_T")


class OneQuestion:
    """Shared by those that ask the same driver."""

    def __init__(self) -> None:
        self._turn: Final = anyio.CapacityLimiter(1)
        self._last: _Question | None = None

    async def ask(self, question: Callable[[], _T], *, within_s: float) -> _T:
        """Return the driver's answer. Raises TimeoutError without one in time, or if one before has none yet."""
        with anyio.fail_after(within_s):
            async with self._turn:
                if self._last is not None and self._last.is_open:
                    raise TimeoutError
                self._last = asked = _Question(question)
                try:
                    found: _T = await anyio.to_thread.run_sync(asked.put, abandon_on_cancel=True)
                finally:
                    asked.give_up()
                return found


class _Question:
    """``is_open``: its thread is in the driver."""

    def __init__(self, question: Callable[[], Any]) -> None:
        self._question = question
        self._lock = threading.Lock()
        self._is_given_up = False
        self.is_open = False

    def put(self) -> Any:
        """Ask, in a thread. One that was given up before its thread began is never asked."""
        with self._lock:
            if self._is_given_up:
                return None
            self.is_open = True
        try:
            return self._question()
        finally:
            self.is_open = False

    def give_up(self) -> None:
        """Nobody waits for the answer any more."""
        with self._lock:
            self._is_given_up = True
