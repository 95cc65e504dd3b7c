"""Lines on stderr while a command takes long, so that nobody takes it for one that hangs.

They are for people: where stderr is no terminal there are none, since scripts read errors there. The first line comes
after two seconds, which most commands never take.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

AFTER_S: Final = 2.0
EVERY_S: Final = 5.0


class Progress:
    """Says what a command is doing, from two seconds after this was made on. ``now_s``: a clock that never goes back.

    ``doing``: what is said where a caller of ``tick`` says nothing else.
    """

    def __init__(
        self, doing: str = "", *, out: TextIO | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.doing = doing
        self._out = sys.stderr if out is None else out
        self._now_s = now_s
        self._next_s = now_s() + AFTER_S

    def tick(self, say: Callable[[], str] | None = None) -> None:
        """Write a line if it is time for one. ``say`` is only called then, so it may count."""
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        if self._out.isatty():
            self._out.write(f"moorage: {say() if say is not None else self.doing} ...\n")
            self._out.flush()

    @contextmanager
    def waiting(self, say: Callable[[], str] | None = None) -> Iterator[None]:
        """Tick while the event loop waits in this block. Not for a loop of virtual time, which never waits."""
        import asyncio  # noqa: PLC0415 - commands that read files only do without it

        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def begin() -> None:
            timers[:] = [loop.call_later(max(self._next_s - self._now_s(), 0.0), again)]

        def again() -> None:
            self.tick(say)
            begin()

        begin()
        try:
            yield
        finally:
            timers[0].cancel()
