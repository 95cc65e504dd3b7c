"""How a process of the node stops, and writes its lines: the warden's, and the keeper's of MPS."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


class Stop:
    """Whether a signal said stop; ``file`` can be read from then on."""

    def __init__(self) -> None:
        self._is_set = False
        self.file, self._written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._is_set

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self._is_set = True
        os.write(self._written, b"!")


def say(message: str) -> None:
    """Write one line, whatever signs the message has."""
    sys.stderr.write("".join(sign if sign.isprintable() else "?" for sign in message) + "\n")
    sys.stderr.flush()
