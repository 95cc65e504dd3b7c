"""Starts and ends real commands on one machine's GPUs, as told on stdin: ``python -m tests.cli.machine.launcher``.

It has one thread, so it may fork, and a start costs milliseconds. Lines: ``start NAME GPUS WAIT_S [UID]``, ``kill
NAME`` (its first process, by SIGKILL), ``end NAME`` (all of its processes), ``blocked NAME``, ``list``. A start answers
``NAME`` and what it got, when it got it, and ``NAME waits`` when it is first in the queue and waits. ``kill`` and
``end`` answer when the kernel has done it, ``blocked`` when the command waits for its turn.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

from cli.machine.books import Folder, Processes, Site
from cli.machine.placement import Gpu, requested
from cli.run import print_list

ROOT: Final = Path(__file__).parents[3]
CARDS: Final = 4
MIB: Final = 81_920
#: A shell whose child outlives it, and which answers when that runs.
COMMAND: Final = ["/bin/sh", "-c", 'sleep 600 < /dev/null > /dev/null & echo "$0"; exec < /dev/null > /dev/null; wait']


def site(folder: Path) -> Site:
    """A machine with four equal GPUs."""
    return Site([Gpu(at, f"GPU-{at}", MIB) for at in range(CARDS)], Folder(folder), Processes())


def main() -> None:
    """Answer lines until stdin ends, then end all that runs."""
    here, running = site(Path(sys.argv[1])), dict[str, int]()
    for line in sys.stdin:
        match line.split():
            case ["start", name, gpus, wait_s, *uid]:
                running[name] = os.fork()
                if not running[name]:
                    _become(*map(int, uid))
                    _start(here, name, gpus, float(wait_s))
            case ["kill", name]:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(running[name], signal.SIGKILL)
                    os.waitpid(running[name], 0)
                _say(f"{name} killed")
            case ["blocked", name]:
                while not _is_blocked(running[name]):
                    time.sleep(0.005)
                _say(f"{name} waits")
            case ["end", name]:
                _end(running.pop(name))
                _say(f"{name} ended")
            case _:
                print_list(here.gpus(), form="json", has_headers=True)
                _say("")
    for group in running.values():
        _end(group)


def _become(uid: int = 0) -> None:
    """Become another user, whose files nobody else may read unless they say so."""
    if uid:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.umask(0o077)


def _start(here: Site, name: str, gpus: str, wait_s: float) -> None:
    os.setsid()
    try:
        found = here.take(
            requested(gpus, None),
            f"test/{name}",
            0,
            wait_s=wait_s,
            tell=lambda _: _say(f"{name} waits"),
            now=time.monotonic,
            sleep=lambda _: time.sleep(0.005),
        )
    except OSError:
        found = ()
    if isinstance(found, tuple) and found:
        got = ",".join(f"{gpu.index}:{gpu.charged_nano}" for gpu in found)
        os.execv(COMMAND[0], [*COMMAND, f"{name} {got}"])  # noqa: S606 - as moorage run does
    _say(f"{name} refused")
    os._exit(0)


def _is_blocked(pid: int) -> bool:
    """Whether a process waits for a lock of others, as the kernel lists it: ``1: -> FLOCK ADVISORY WRITE PID ...``."""
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any(words[1:3] == ["->", "FLOCK"] and words[5] == str(pid) for words in map(str.split, lines))


def _end(group: int) -> None:
    """End a session, and wait until the kernel has taken its locks."""
    fds = [os.pidfd_open(pid) for pid in _pids(group)]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        # It may not have become a group yet.
        os.kill(group, signal.SIGKILL)
    for fd in fds:
        select.select([fd], [], [])
        os.close(fd)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(group, 0)


def _pids(group: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(group):
            found.append(int(stat.parent.name))
    return found


def _say(text: str) -> None:
    sys.stdout.flush()
    os.write(1, f"{text}\n".encode())


if __name__ == "__main__":
    main()
