"""Ends a run that does not end on its own.

Virtual time never waits, so a run that hangs either burns the processor for ever, or lets virtual hours pass. The
second is bounded by the run itself; here is the first, by processor time: how busy the machine is does not matter.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

#: After the first signal further ones: interrupted code may run into another endless loop while it ends.
_AGAIN_S: Final = 1.0


class RanTooLong(KeyboardInterrupt):  # asyncio lets only this kind out at once
    """Raised in the middle of running code when the processor time is used up."""


@contextlib.contextmanager
def processor_time(limit_s: float) -> Iterator[None]:
    """Raise RanTooLong inside when this process has used so much processor time. Main thread only; else no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _quiet_where_lost():
        before = signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, limit_s, _AGAIN_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


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


def _stop(_signal: int, frame: FrameType | None) -> None:
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "nowhere"
    raise RanTooLong(where)
