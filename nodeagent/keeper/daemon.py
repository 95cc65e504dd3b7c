"""The control daemon of MPS as a child of the keeper.

Its end is the end of its clients' programs. So one that runs is never ended by the keeper, also where it does not
answer, until the keeper stops. One that has ended is started again, after a pause that doubles.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from typing import Final

from nodeagent.keeper.control import Control

_FIRST_PAUSE_NS: Final = 10**9
_LONGEST_PAUSE_NS: Final = 60 * 10**9
#: A daemon that ran so long is not one that fails at its start.
_STEADY_NS: Final = 60 * 10**9
#: Twice at most: the keeper's pod has 10 s.
_GOODBYE_S: Final = 4.0


class Daemon:
    """Times are of the monotonic clock."""

    def __init__(self, control: Control, *, say: Callable[[str], None]) -> None:
        self._control = control
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._pause_ns = _FIRST_PAUSE_NS
        self._started_ns = self._due_ns = 0

    def tend(self, now_ns: int) -> str:
        """Start it where it does not run and a start is due; return why it does not run, "" where it does."""
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return ""
            self._rest(now_ns)
            self._process = None
            self._say(f"the control daemon has ended with status {status}")
        if now_ns < self._due_ns:
            return "the MPS control daemon has ended and is started again"
        command, environ = self._control.daemon()
        try:
            self._control.pipes.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._process = subprocess.Popen(  # noqa: S603 - the administrator's program, and words of ours
                command, env=environ, stdin=subprocess.DEVNULL
            )
        except OSError as error:
            self._rest(now_ns)
            return f"the MPS control daemon can't be started: {error.strerror}"
        self._started_ns = now_ns
        self._say(f"the control daemon was started, process {self._process.pid}")
        return ""

    def stop(self) -> None:
        """End it, with the programs of its clients."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel keeps it: its end can't be waited for
                self._process.wait(_GOODBYE_S)

    def _rest(self, now_ns: int) -> None:
        """Wait before the next start."""
        was_steady = self._process is not None and now_ns - self._started_ns >= _STEADY_NS
        self._pause_ns = _FIRST_PAUSE_NS if was_steady else min(2 * self._pause_ns, _LONGEST_PAUSE_NS)
        self._due_ns = now_ns + self._pause_ns
