"""Take GPUs for this process: wait for them in turn, and write it into their books, all or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cli.machine.folder import Folder
from cli.machine.placing import Ask, Gpu, Shortfall, place
from cli.machine.processes import Processes
from gpu.book import Entry, MalformedBook, Tenant, leave

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

    def standing(self) -> list[Gpu]:
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
        found, told = place(ask, self.standing(), key, entry), None
        if isinstance(found, Shortfall) and found.is_for_ever:
            return found
        with self._folder.queue(max(wait_s, _TURN_S)):
            while isinstance(found := place(ask, self.standing(), key, entry), Shortfall):
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
