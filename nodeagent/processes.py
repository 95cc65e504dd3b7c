"""What /proc says of a process: when it started, and which pod it belongs to.

Nothing else is read of a process: no command line, no environment, no file of a tenant.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from nodeagent.core.cgroups import Seat, seat
from nodeagent.core.judging import Seen

#: Of ``stat`` and of ``cgroup``: a path may have 4,096 bytes, in each of about 15 lines.
_MOST_BYTES: Final = 1 << 17
#: Place of the start time among the fields behind the name (proc_pid_stat(5), field 22).
_START_FIELD: Final = 19


@dataclass(frozen=True, slots=True)
class Known:
    """A process. ``name``: what it calls itself, with signs that can be printed only."""

    started: int
    seat: Seat | None
    name: str


class Processes:
    """Looks processes up. Where a process sits is kept while it was looked up last time, too."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[int, Known] = {}

    def known(self, pid: int) -> Known | None:
        """Look a process up for a sample; None if there is no such one."""
        stat = self._stat(pid)
        if stat is None:
            return None
        started, name = stat
        kept = self._known.get(pid)
        if kept is not None and kept.started == started and kept.seat is not None:
            return kept
        found = Known(started, self._seat(pid), name)
        self._known[pid] = found
        return found

    def forget_others(self, pids: Collection[int]) -> None:
        """Keep nothing but what is known of these."""
        if len(self._known) > len(pids):
            self._known = {pid: self._known[pid] for pid in pids if pid in self._known}

    def seen(self, pid: int) -> Seen | None:
        """Look again, at the process itself and not at what is kept; None if there is no such one."""
        stat = self._stat(pid)
        if stat is None:
            return None
        found = self._seat(pid)
        return Seen(stat[0], found.pod_uid if found is not None else "")

    def _stat(self, pid: int) -> tuple[int, str] | None:
        """Start time and name."""
        text = self._read(pid, "stat")
        # A name may have brackets, blanks and line ends of its own.
        head, _, fields = text.rpartition(")")
        numbers = fields.split()
        if len(numbers) <= _START_FIELD or not numbers[_START_FIELD].isdigit():
            return None
        name = head.partition("(")[2]
        return int(numbers[_START_FIELD]), "".join(sign if sign.isprintable() else "?" for sign in name[:64])

    def _seat(self, pid: int) -> Seat | None:
        return seat(self._read(pid, "cgroup"))

    def _read(self, pid: int, what: str) -> str:
        """Read one of its files; "" if it has ended."""
        try:
            file = os.open(f"{self._proc}/{pid:d}/{what}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return os.read(file, _MOST_BYTES).decode(errors="replace")
        except OSError:
            return ""
        finally:
            os.close(file)
