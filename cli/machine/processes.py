"""Identify processes, so that an entry of a book ends with its process: no daemon has to watch it.

A key is PID, start time and PID namespace, the attempt of an entry is the boot: neither a PID that is used again nor a
reboot makes a process of today out of an entry of yesterday.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

#: PID (at most 4194304), start time in ticks since boot, inode of the PID namespace.
_KEY: Final = re.compile(r"([1-9][0-9]{0,6})\.([0-9]{1,20})\.([0-9]{1,20})", re.ASCII)
#: Fields of /proc/PID/stat behind the name: the state, and the start time.
_STATE, _START = 0, 19


class Processes:
    """The processes of this machine, as /proc shows them. ``boot`` is the kernel's name of this boot."""

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
