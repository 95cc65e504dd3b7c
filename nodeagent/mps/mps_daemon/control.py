"""The control daemon of MPS as a child of the MPS daemon, and asking it."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.core.mps import control
from nodeagent.core.mps.control import Said
from wire.units import SECOND_NS

PROGRAM: Final = "nvidia-cuda-mps-control"
#: Of a command, and of the three that a look is. A control daemon that does not answer so long hangs, or is not there.
PATIENCE_S: Final = 5.0
#: A process that was killed is gone at once, unless the kernel keeps it. Then it is left, and reaped later.
_GOODBYE_S: Final = 1.0
_READ_BYTES: Final = 1 << 16
_LONGEST_WHY: Final = 120


class NoAnswer(Exception):
    """Raised where the program can't be started or does not end in time."""


class Refused(Exception):
    """Raised where the program ends with an error; the message is its first line."""


class Stopped(Exception):
    """Raised where the MPS daemon has to stop and goes on waiting for nothing."""


class Control:
    """``pipes``: the daemon's pipe directory, ``logs``: that of its logs.

    ``stop``: a file that can be read once the MPS daemon has to stop.

    A command is the daemon's program, for a bounded time and of a bounded length. It ends with its answer, with its
    time, or as soon as the MPS daemon has to stop.
    """

    def __init__(
        self, program: str, *, pipes: Path, logs: Path, patience_s: float = PATIENCE_S, stop: int | None = None
    ) -> None:
        self.pipes = pipes
        self.patience_s = patience_s
        self._program = program
        self._logs = logs
        self._stop = stop

    def daemon(self) -> tuple[list[str], Mapping[str, str]]:
        """Return command and environment of the control daemon: version 3, in the foreground, for all users."""
        return [self._program, "-f", "-p", "3", "-m"], self._environ()

    def look(self) -> Said:
        """Read servers, namespaces and clients, in the time of one command. Raises NoAnswer, Refused and Stopped."""
        until_s = time.monotonic() + self.patience_s
        listed = [
            self.ask((module, "list", "--format=csv,noheader", *more), max(until_s - time.monotonic(), 0))
            for module, more in (("server", ()), ("namespace", ()), ("client", ("--all",)))
        ]
        return Said(control.servers(listed[0]), control.namespaces(listed[1]), control.clients(listed[2]))

    def ask(self, words: Sequence[str], patience_s: float) -> str:
        """Carry a command out, and return what it prints. Raises NoAnswer, Refused and Stopped."""
        until_s = time.monotonic() + patience_s
        try:
            process = subprocess.Popen(  # noqa: S603 - the administrator's program, and words of ours
                [self._program, *words],
                env=self._environ(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise NoAnswer(f"{self._program} can't be started: {error.strerror}") from error
        try:
            printed, status = self._answer(process, until_s)
        except TimeoutError:
            raise NoAnswer(f"no answer to {' '.join(words[:2])} in {self.patience_s:g} s") from None
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GOODBYE_S)
            if process.stdout is not None:
                process.stdout.close()
        if status:
            raise Refused(f"{' '.join(words[:2])}: {_first_line(printed) or f'exit status {status}'}")
        return printed

    def _answer(self, process: subprocess.Popen[bytes], until_s: float) -> tuple[str, int]:
        """Return what it prints, and its exit status. Raises TimeoutError and Stopped."""
        ended = os.pidfd_open(process.pid)
        try:
            printed = self._printed(process.stdout.fileno() if process.stdout is not None else -1, until_s)
            self._wait(ended, until_s)
            return printed, process.wait()
        finally:
            os.close(ended)

    def _printed(self, file: int, until_s: float) -> str:
        """Read until its end; beyond the bound nothing is kept. Raises TimeoutError and Stopped."""
        held = bytearray()
        while True:
            self._wait(file, until_s)
            read = os.read(file, _READ_BYTES)
            if not read:
                return held.decode(errors="replace")
            if time.monotonic() > until_s:
                raise TimeoutError
            held += read[: control.MOST_BYTES - len(held)]

    def _wait(self, file: int, until_s: float) -> None:
        """Wait until there is something to read. Raises TimeoutError and Stopped."""
        with selectors.DefaultSelector() as selector:
            selector.register(file, selectors.EVENT_READ)
            if self._stop is not None:
                selector.register(self._stop, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(max(until_s - time.monotonic(), 0))}
        if self._stop in ready:
            raise Stopped
        if not ready:
            raise TimeoutError

    def _environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
            "CUDA_MPS_PROTOCOL_VERSION": "3",
        }


def _first_line(printed: str) -> str:
    return next((line.strip() for line in printed.splitlines() if line.strip()), "")[:_LONGEST_WHY]


_FIRST_PAUSE_NS: Final = 10**9
_LONGEST_PAUSE_NS: Final = 60 * SECOND_NS
#: A control daemon that ran so long is not one that fails at its start.
_STEADY_NS: Final = 60 * SECOND_NS
#: Twice at most: the MPS daemon's pod has 10 s.
_DAEMON_ENDS_WITHIN_S: Final = 4.0


class Daemon:
    """Times are of the monotonic clock.

    Its end is the end of its clients' programs. So one that runs is never ended by the MPS daemon, also where it does
    not answer, until the MPS daemon stops. One that has ended is started again, after a pause that doubles.
    """

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
            self._process.wait(_DAEMON_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel keeps it: its end can't be waited for
                self._process.wait(_DAEMON_ENDS_WITHIN_S)

    def _rest(self, now_ns: int) -> None:
        """Wait before the next start."""
        was_steady = self._process is not None and now_ns - self._started_ns >= _STEADY_NS
        self._pause_ns = _FIRST_PAUSE_NS if was_steady else min(2 * self._pause_ns, _LONGEST_PAUSE_NS)
        self._due_ns = now_ns + self._pause_ns
