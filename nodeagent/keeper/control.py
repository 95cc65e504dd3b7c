"""Asking the control daemon of MPS: its program with a command, for a bounded time and of a bounded length."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.core import mpscontrol
from nodeagent.core.mpscontrol import Said

PROGRAM: Final = "nvidia-cuda-mps-control"
#: A daemon that does not answer so long hangs, or is not there.
PATIENCE_S: Final = 5.0
_READ_BYTES: Final = 1 << 16
_LONGEST_WHY: Final = 120


class NoAnswer(Exception):
    """Raised where the program can't be started or does not end in time."""


class Refused(Exception):
    """Raised where the program ends with an error; the message is its first line."""


class Control:
    """``pipes``: the daemon's pipe directory, ``logs``: that of its logs."""

    def __init__(self, program: str, *, pipes: Path, logs: Path, patience_s: float = PATIENCE_S) -> None:
        self.pipes = pipes
        self._program = program
        self._logs = logs
        self._patience_s = patience_s

    def daemon(self) -> tuple[list[str], Mapping[str, str]]:
        """Return command and environment of the daemon: version 3, in the foreground, for clients of all users."""
        return [self._program, "-f", "-p", "3", "-m"], self._environ()

    def look(self) -> Said:
        """Read servers, namespaces and clients. Raises NoAnswer and Refused."""
        listed = [
            self.ask((module, "list", "--format=csv,noheader", *more))
            for module, more in (("server", ()), ("namespace", ()), ("client", ("--all",)))
        ]
        return Said(mpscontrol.servers(listed[0]), mpscontrol.namespaces(listed[1]), mpscontrol.clients(listed[2]))

    def ask(self, words: Sequence[str]) -> str:
        """Carry a command out, and return what it prints. Raises NoAnswer and Refused."""
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
            printed = self._printed(process.stdout.fileno() if process.stdout is not None else -1)
            status = process.wait(self._patience_s)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise NoAnswer(f"no answer to {' '.join(words[:2])} in {self._patience_s:g} s") from None
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if status:
            raise Refused(f"{' '.join(words[:2])}: {_first_line(printed) or f'exit status {status}'}")
        return printed

    def _printed(self, file: int) -> str:
        """Read until its end. Raises TimeoutError; beyond the bound nothing is kept."""
        until_s, held = time.monotonic() + self._patience_s, bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(file, selectors.EVENT_READ)
            while True:
                if not selector.select(max(until_s - time.monotonic(), 0)):
                    raise TimeoutError
                read = os.read(file, _READ_BYTES)
                if not read:
                    return held.decode(errors="replace")
                if time.monotonic() > until_s:
                    raise TimeoutError
                held += read[: mpscontrol.MOST_BYTES - len(held)]

    def _environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
            "CUDA_MPS_PROTOCOL_VERSION": "3",
        }


def _first_line(printed: str) -> str:
    return next((line.strip() for line in printed.splitlines() if line.strip()), "")[:_LONGEST_WHY]
