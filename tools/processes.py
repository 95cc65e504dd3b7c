"""Long-running child processes: a log each, a process group each, and none left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Literal, Self

from tools.guard import cgroup_folders, remove_cgroup

_TAIL_LINES = 20
#: A program that is killed gives back its memory and its ports before it has ended.
_END_WITHIN_S = 60.0
_POLL_S = 0.05


class ProcessDied(Exception):
    """Raised when a process ended that should be running; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class Child:
    """One running program and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    command: Sequence[str | Path] = ()

    def check(self) -> None:
        """Raise ProcessDied if the program has ended."""
        if self.process.poll() is not None:
            raise ProcessDied(f"{self.name} ended with {self.process.returncode}; its log ends:\n{self.tail()}")

    def tail(self) -> str:
        """The last lines of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])

    def resident_kib(self) -> int:
        """Resident memory in KiB, as the kernel counts it (Linux)."""
        kib = resident_kib(self.process.pid)
        if kib is None:
            raise ProcessDied(f"{self.name} has no memory any more")
        return kib


def resident_kib(pid: int) -> int | None:
    """Resident memory of a process in KiB, as the kernel counts it (Linux); None when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), None)


@dataclass(slots=True)
class Family:
    """Child processes that share a folder and end together, at the latest when this process ends."""

    folder: Path
    children: list[Child] = field(default_factory=list)
    _cgroups: list[str] = field(default_factory=list)
    _guard: subprocess.Popen[bytes] | None = None

    def start(self, name: str, command: Sequence[str | Path]) -> Child:
        """Start a program in a process group of its own, with its output in ``NAME.log``."""
        return self._start(name, command, mode="wb")

    def add_cgroup(self, name: str) -> None:
        """Make a top-level control group that goes when the programs end, with all that they made in it."""
        self._guard_input().write(f"cgroup {name}\n".encode())
        self._cgroups.append(name)
        for folder in cgroup_folders(name):
            folder.mkdir()

    def again(self, child: Child) -> Child:
        """Start a program once more as it was; its log goes on. It must have ended."""
        self._forget(child)
        return self._start(child.name, child.command, mode="ab")

    def kill(self, child: Child) -> None:
        """End a program as a crash does: nothing is tidied up. From here on it is not missed."""
        _end(child)
        self._forget(child)

    def _forget(self, child: Child) -> None:
        self.children = [other for other in self.children if other is not child]

    def _start(self, name: str, command: Sequence[str | Path], *, mode: Literal["wb", "ab"]) -> Child:
        guard_input = self._guard_input()
        log = self.folder / f"{name}.log"
        with log.open(mode) as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        guard_input.write(f"{process.pid}\n".encode())
        child = Child(name, process, log, command)
        self.children.append(child)
        return child

    def check(self) -> None:
        """Raise ProcessDied if any program has ended."""
        for child in self.children:
            child.check()

    def stop(self) -> None:
        """Kill all programs and what they started. Nothing of theirs is worth an orderly shutdown."""
        for child in reversed(self.children):
            _end(child)
        self.children.clear()
        kept = [name for name in self._cgroups if not remove_cgroup(name)]
        self._cgroups.clear()
        if self._guard is not None:
            self._guard.communicate(b"done\n", timeout=_END_WITHIN_S)
            self._guard = None
        if kept:
            raise RuntimeError(f"processes are left in the control groups {', '.join(kept)}")

    def _guard_input(self) -> IO[bytes]:
        if self._guard is None:
            script = Path(__file__).with_name("guard.py")
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", script, self.folder],
                stdin=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        assert self._guard.stdin is not None
        return self._guard.stdin


class Programs(ABC):
    """``with``: what a subclass starts in ``_start``, of one family, ends with the block, or with a start that fails.

    A temporary folder goes with them.
    """

    def __init__(self, folder: Path | TemporaryDirectory[str]) -> None:
        self._scratch = None if isinstance(folder, Path) else folder
        self._family = Family(folder if isinstance(folder, Path) else Path(folder.name))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._family.stop()
        if self._scratch is not None:
            self._scratch.cleanup()

    def check(self) -> None:
        """Raise ProcessDied if a program has ended on its own."""
        self._family.check()

    @property
    def folder(self) -> Path:
        """Where the logs are."""
        return self._family.folder

    @abstractmethod
    def _start(self) -> None: ...


def wait_until(holds: Callable[[], bool], family: Family, what: str, *, within_s: float) -> None:
    """Ask again and again while programs run. Raises ProcessDied when one ends, and TimeoutError."""
    give_up_at = time.monotonic() + within_s
    while not holds():
        family.check()
        if time.monotonic() > give_up_at:
            tails = "\n".join(f"{child.name}:\n{child.tail()}" for child in family.children)
            raise TimeoutError(f"waited {within_s:.0f} s for {what}; the logs end:\n{tails}")
        time.sleep(_POLL_S)


def _end(child: Child) -> None:
    """Kill a program's process group, and wait until all of it has ended.

    The program itself may be a child of what we have started (nsenter(1)), and outlives that by a moment in which it
    still has its ports. Raises TimeoutError, subprocess.TimeoutExpired.
    """
    group = child.process.pid
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    give_up_at = time.monotonic() + _END_WITHIN_S
    for pid in _members(group):
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if not select.select([handle], [], [], max(0.0, give_up_at - time.monotonic()))[0]:
                    raise TimeoutError(f"process {pid} of {child.name} was killed {_END_WITHIN_S:.0f} s ago, and runs")
            finally:
                os.close(handle)
    child.process.wait(max(0.0, give_up_at - time.monotonic()))


def _members(group: int) -> Iterator[int]:
    """The processes of a group that have not been reaped (Linux)."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name, in brackets, may have any characters; state, parent and group come after it.
            if int(path.read_text(errors="replace").rpartition(")")[2].split()[2]) == group:
                yield int(path.parent.name)
