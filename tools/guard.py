"""Ends a control plane whose owner died without doing so: ``python guard.py FOLDER``, with the owner on standard input.

The owner writes a line with the id of each process group that it starts, and ``done`` once it has ended them all
itself. If the input ends before that, the owner is gone, however it died (kill -9 of a test run included): the guard
kills the groups and removes the folder. It imports nothing of ours, so it starts in no time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from typing import TextIO


def watch(owner: TextIO, folder: str) -> None:
    """Wait for the owner's end and tidy up if that is still to do."""
    groups: list[int] = []
    for line in owner:
        if line == "done\n":
            return
        groups.append(int(line))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin, sys.argv[1])
