"""Take GPUs for this process: wait for them in turn, and write it into their books, all or none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from cli.machine.placement import Ask, Gpu, Shortfall, place
from gpu.book import EMPTY, Book, Entry, MalformedBook, Tenant, leave, parse, render
from gpu.bound_pod import LARGEST

#: PID (at most 4194304), start time in ticks since boot, inode of the PID namespace.
_KEY: Final = re.compile(r"([1-9][0-9]{0,6})\.([0-9]{1,20})\.([0-9]{1,20})", re.ASCII)
#: Fields of /proc/PID/stat behind the name: the state, and the start time.
_STATE, _START = 0, 19


class Processes:
    """The processes of this machine, as /proc shows them. ``boot`` is the kernel's name of this boot.

    So an entry of a book ends with its process, and no daemon has to watch it. A key is PID, start time and PID
    namespace, the attempt of an entry is the boot: neither a PID that is used again nor a reboot makes a process of
    today out of an entry of yesterday.
    """

    def __init__(self) -> None:
        self.boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        self._namespace = str(Path("/proc/self/ns/pid").stat().st_ino)

    def own_key(self) -> str:
        """Return the key of this process, which stays the same when it executes another program."""
        return f"{os.getpid()}.{_stat('self')[_START]}.{self._namespace}"

    def is_alive(self, key: str) -> bool:
        """Whether the process of a key of this boot runs. One of another PID namespace can't be seen: it does not."""
        found = _KEY.fullmatch(key)
        if found is None or found[3] != self._namespace:
            return False
        try:
            stat = _stat(found[1])
        except OSError:
            return _is_hidden(int(found[1]))
        return stat[_START] == found[2] and stat[_STATE] not in {"Z", "X"}


def pid_of(key: str) -> int:
    """Return the PID in a key; 0 for what is no key."""
    found = _KEY.fullmatch(key)
    return int(found[1]) if found else 0


def _stat(pid: str) -> list[str]:
    return Path("/proc", pid, "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


def _is_hidden(pid: int) -> bool:
    """Whether /proc hides a process of somebody else (``hidepid``)."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return False


_HELD: Final = ".held"
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
#: The rights of the folder say who takes part.
_MODE: Final = 0o644


class Folder:
    """Books by UUID, one file a GPU, and a file for each command, which one of its processes has open and locked.

    A book is written by rename while ``queue`` is locked. Any user with write access may take part, so files of
    others are read with care: no links, no pipes, and no more bytes than a book may have.
    """

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


#: Time between two looks of the first in the queue.
_LOOK_S = 0.5
#: Commands that don't wait hold the queue for milliseconds: one that holds it for so long waits.
_TURN_S = 3.0

Tell = Callable[[str], object]
Sleep = Callable[[float], None]


class Site:
    """Where commands share GPUs: ``gpus`` as NVML lists them, the folder of their books, and the processes."""

    def __init__(self, gpus: Sequence[Gpu], folder: Folder, processes: Processes) -> None:
        self._gpus = gpus
        self._folder = folder
        self._processes = processes

    def gpus(self) -> list[Gpu]:
        """Read all books, without commands that have ended. It needs no lock: a book is replaced whole."""
        return [gpu if gpu.why_closed else self._read(gpu) for gpu in self._gpus]

    def take(
        self, ask: Ask, who: str, since_s: int, *, wait_s: float, tell: Tell, now: Callable[[], float], sleep: Sleep
    ) -> tuple[Gpu, ...] | Shortfall:
        """Charge this process for GPUs and lock its file. ``tell``: why it waits; called when that changes.

        ``who`` and ``since_s`` (seconds since the epoch) are for people. Raises TimeoutError if others waited before it
        all the time, OSError where the folder can't be used.
        """
        key, until = self._processes.own_key(), now() + wait_s
        entry = Entry(nano=0, attempt=self._processes.boot, rv="", since=since_s, pod=who)
        found, told = place(ask, self.gpus(), key, entry), None
        if isinstance(found, Shortfall) and found.is_for_ever:
            return found
        with self._folder.queue(max(wait_s, _TURN_S)):
            while isinstance(found := place(ask, self.gpus(), key, entry), Shortfall):
                if found.is_for_ever or (left := until - now()) <= 0:
                    return found
                if found != told:
                    tell(f"waiting: {found.shown()}")
                told = found
                sleep(min(_LOOK_S, left))
            self._write(key, found)
        return found

    def _read(self, gpu: Gpu) -> Gpu:
        try:
            book = self._folder.book(gpu.uuid)
        except (MalformedBook, OSError) as error:
            return msgspec.structs.replace(gpu, why_closed=f"{gpu.uuid}.json can't be read ({error}); remove it")
        dead = [Tenant(key, entry) for key, entry in book.entries.items() if not self._is_alive(key, entry)]
        return msgspec.structs.replace(gpu, book=leave(book, dead))

    def _is_alive(self, key: str, entry: Entry) -> bool:
        """Whether a command runs: its process, or one that it started and left its file open to."""
        here = self._processes
        return entry.attempt == here.boot and (self._folder.is_held(key) or here.is_alive(key))

    def _write(self, key: str, gpus: tuple[Gpu, ...]) -> None:
        """Lock the file first. If this process dies between two books, what it wrote is dead with it."""
        self._folder.sweep()
        self._folder.hold(key)
        for gpu in gpus:
            self._folder.write(gpu.uuid, gpu.book)
