"""The folder with the books of a machine's GPUs: one file a GPU, written by rename while ``queue`` is locked.

Everybody who may write there may take part, so files of others are read with care: no links, no pipes, and no more
bytes than a book may have.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from gpu.book import EMPTY, Book, MalformedBook, parse, render
from gpu.room import LARGEST

_HELD: Final = ".held"
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
#: The rights of the folder say who takes part.
_MODE: Final = 0o644


class Folder:
    """Books by UUID, and a file for each command, which is locked for as long as one of its processes has it open."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def queue(self, wait_s: float) -> Iterator[None]:
        """Hold the one lock, in which commands come first in, first out. Raises TimeoutError after ``wait_s``.

        The kernel keeps the order of those that wait, and takes the lock from a process that dies. Ctrl-Z does nothing
        while the lock is held or waited for: a stopped process would keep all others waiting.
        """
        file = self._locked_by("queue")
        stop, alarm = signal.signal(signal.SIGTSTP, signal.SIG_IGN), signal.signal(signal.SIGALRM, _time_is_over)
        try:
            signal.setitimer(signal.ITIMER_REAL, wait_s)
            fcntl.flock(file, fcntl.LOCK_EX)
            signal.setitimer(signal.ITIMER_REAL, 0)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
            signal.signal(signal.SIGTSTP, stop)
            os.close(file)

    def book(self, uuid: str) -> Book:
        """Read the book of a GPU; one without a file is empty. Raises MalformedBook and OSError."""
        try:
            reader = self._reader(f"{uuid}.json")
        except FileNotFoundError:
            return EMPTY
        with reader:
            if not stat.S_ISREG(os.fstat(reader.fileno()).st_mode):
                raise MalformedBook("no regular file")
            content = reader.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise MalformedBook(f"more than {LARGEST} bytes")
        return parse(content.decode(errors="replace"))

    def write(self, uuid: str, book: Book) -> None:
        """Replace the book of a GPU, whole. The queue has to be held."""
        new = self.path / f"{uuid}.new"
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w") as writer:
            os.fchmod(writer.fileno(), _MODE)
            writer.write(render(book))
        new.replace(self.path / f"{uuid}.json")

    def hold(self, key: str) -> None:
        """Lock the file of this process for it and for all that inherit its open files, also behind an exec."""
        file = self._locked_by(key + _HELD)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.set_inheritable(file, True)

    def is_held(self, key: str) -> bool:
        """Whether any process has the file of this key open and locked."""
        try:
            with self._reader(key + _HELD) as reader:
                fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False

    def sweep(self) -> None:
        """Remove files of commands that no process has open. The queue has to be held."""
        for held in self.path.glob(f"*{_HELD}"):
            if not self.is_held(held.name.removesuffix(_HELD)):
                held.unlink(missing_ok=True)

    def _reader(self, name: str) -> BinaryIO:
        return os.fdopen(os.open(self.path / name, _READ), "rb")

    def _locked_by(self, name: str) -> int:
        """Open a file for its lock, which needs no right to write; created if it is not there."""
        with contextlib.suppress(FileNotFoundError):
            return os.open(self.path / name, _READ)
        file = os.open(self.path / name, _READ | os.O_CREAT, _MODE)
        os.fchmod(file, _MODE)
        return file


def _time_is_over(*_given: object) -> None:
    raise TimeoutError
