"""Ends a control plane whose owner died without doing so: ``python guard.py FOLDER``, with the owner on standard input.

The owner writes a line with the id of each process group that it starts, ``cgroup NAME`` for each control group that
it makes, and ``done`` once it has ended and removed them all itself. If the input ends before that, the owner is gone,
however it died (kill -9 of a test run included): the guard kills the process groups, removes the control groups and
then the folder. It imports nothing of ours, so it starts in no time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_EMPTY_WITHIN_S = 60.0
_POLL_S = 0.05


def watch(owner: TextIO, folder: str) -> None:
    """Wait for the owner's end and tidy up if that is still to do."""
    groups: list[int] = []
    control_groups: list[str] = []
    for line in owner:
        if line == "done\n":
            return
        if line.startswith("cgroup "):
            control_groups.append(line.split()[1])
        else:
            groups.append(int(line))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for name in control_groups:
        remove_cgroup(name)
    shutil.rmtree(folder, ignore_errors=True)


def cgroup_folders(name: str) -> list[Path]:
    """Return where a top-level control group is, or would be: in every hierarchy of version 1, or in that of 2."""
    if (_CONTROL_GROUPS / "cgroup.controllers").exists():
        return [_CONTROL_GROUPS / name]
    return [one / name for one in _CONTROL_GROUPS.iterdir() if one.is_dir() and not one.is_symlink()]


def remove_cgroup(name: str) -> bool:
    """Remove a top-level control group and all below it, waiting for processes in it to end; say whether it is gone."""
    give_up_at = time.monotonic() + _EMPTY_WITHIN_S
    while left := [folder for folder in cgroup_folders(name) if folder.exists()]:
        for top in left:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # a process in it has not quite ended
                    os.rmdir(folder)  # noqa: PTH106 - os.walk says text
        if time.monotonic() > give_up_at:
            return False
        time.sleep(_POLL_S)
    return True


if __name__ == "__main__":
    watch(sys.stdin, sys.argv[1])
