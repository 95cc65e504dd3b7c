"""Ends a run that does not end on its own.

Virtual time never waits, so a run that hangs either burns the processor while virtual time stands still, or lets
virtual hours pass. The second is bounded by the run itself; here is the first, by processor time. What a whole run
takes depends on the machine and on how busy it is, so it is bounded far more widely.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

#: How often is looked, also after the first exception: interrupted code may run into another endless loop as it ends.
_LOOK_S: Final = 1.0
#: Times the limit, a whole run may take.
_IN_ALL: Final = 10


class RanTooLong(KeyboardInterrupt):  # asyncio lets only this kind out at once
    """Raised in the middle of running code when the processor time is used up."""


@contextlib.contextmanager
def processor_time(limit_s: float, progress: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """Raise RanTooLong inside when this process has used so much processor time without progress, or ten times as much.

    ``progress``: the virtual second, which counts as progress once it is another. Main thread only; else no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(limit_s, progress)
    with _quiet_where_lost():
        before = signal.signal(signal.SIGPROF, watch.look)
        signal.setitimer(signal.ITIMER_PROF, min(limit_s, _LOOK_S), _LOOK_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


class _Watch:
    """What has been used since the last progress, and in all."""

    def __init__(self, limit_s: float, progress: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._progress = progress
        self._second = int(progress())
        self._began_s = self._since_s = time.process_time()

    def look(self, _signal: int, frame: FrameType | None) -> None:
        now_s, second = time.process_time(), int(self._progress())
        if second != self._second:
            self._second, self._since_s = second, now_s
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "nowhere"
        if now_s - self._since_s >= self._limit_s:
            raise RanTooLong(f"{self._limit_s:g} s of processor time in one virtual second, at {where}")
        if now_s - self._began_s >= _IN_ALL * self._limit_s:
            raise RanTooLong(f"{_IN_ALL * self._limit_s:g} s of processor time in all, at {where}")


@contextlib.contextmanager
def _quiet_where_lost() -> Iterator[None]:
    """Report no RanTooLong that Python drops, as in the callback of a weak reference: the next signal ends the run."""
    before = sys.unraisablehook

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, RanTooLong):
            before(unraisable)

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = before
