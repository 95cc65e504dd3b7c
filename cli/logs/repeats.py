"""What is said again and again about the same object is said once a minute, with how often it was held back.

The same is: the same event or line of code, at the same level, about the same names. Errors, times, numbers and what an
event says beside its objects may differ. Lines at debug level are not held back: a reader of that level wants all.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TextIO

from typing_extensions import override

from cli.logs.forms import REPEATED, event_of, fields_of
from kube.telemetry.logevents import OBJECTS

WITHIN_S: Final = 60.0
#: The most lines that are known at once; the one known longest is written and forgotten first.
MOST_KNOWN: Final = 4_096
_LONGEST_NAME: Final = 256

Key = tuple[str, int, str, tuple[str, ...]]


class _Known:
    """When a line was last written, how often it was held back since, and the last one that was."""

    __slots__ = ("at_s", "held", "last")

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.held = 0
        self.last: logging.LogRecord | None = None


class Limited(logging.StreamHandler[TextIO]):
    """Writes records to a stream, repeats of one at most once in ``WITHIN_S``. ``now``: a monotonic clock."""

    def __init__(self, stream: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now = now
        #: Oldest first.
        self._known: OrderedDict[Key, _Known] = OrderedDict()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno <= logging.DEBUG:
            super().emit(record)
            return
        now_s = self._now()
        self._tell_due(now_s)
        key = _key(record)
        known = self._known.get(key)
        if known is not None:
            known.held += 1
            known.last = record
            return
        self._known[key] = _Known(now_s)
        super().emit(record)
        while len(self._known) > MOST_KNOWN:
            self._tell(self._known.popitem(last=False)[1])

    def tell_due(self) -> None:
        """Write what was held back and is due, though nothing new is said."""
        self.acquire()
        try:
            self._tell_due(self._now())
        finally:
            self.release()

    def tell_all(self) -> None:
        """Write everything that was held back: the process ends."""
        self.acquire()
        try:
            self._tell_due(math.inf)
        finally:
            self.release()

    def _tell_due(self, now_s: float) -> None:
        """What was held back is said as it was last said; what was not is forgotten."""
        due = []
        for key, known in self._known.items():
            if now_s - known.at_s < WITHIN_S:
                break
            due.append(key)
        for key in due:
            known = self._known.pop(key)
            if known.held and now_s < math.inf:
                self._known[key] = _Known(now_s)
            self._tell(known)

    def _tell(self, known: _Known) -> None:
        if known.last is not None:
            setattr(known.last, REPEATED, known.held)
            super().emit(known.last)


def _key(record: logging.LogRecord) -> Key:
    """What makes two records the same: names count, numbers and errors don't."""
    said = [value for name, value in fields_of(record).items() if name in OBJECTS]
    arguments = record.args.values() if isinstance(record.args, dict) else record.args or ()
    names = tuple(each[:_LONGEST_NAME] for each in (*said, *arguments) if isinstance(each, str))
    error = record.exc_info[0] if record.exc_info else None
    names += (error.__name__,) if error is not None else ()
    return record.name, record.levelno, event_of(record) or str(record.msg), names
