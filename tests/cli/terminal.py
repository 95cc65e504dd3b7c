"""A terminal and a clock for tests of what is told to people."""

from __future__ import annotations

import io

from typing_extensions import override


class Terminal(io.StringIO):
    """A stream that a person reads."""

    @override
    def isatty(self) -> bool:
        return True


class Watch:
    """A clock that is set by hand, and that goes on by ``step_s`` each time it is read."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s = 100.0
        self._step_s = step_s

    def __call__(self) -> float:
        self.now_s += self._step_s
        return self.now_s
