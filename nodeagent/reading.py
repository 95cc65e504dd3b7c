"""Has the GPUs of this machine read by a process of its own, which is ended where the driver does not answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec

from nodeagent.core.machine import Machine
from reservation.device import Unreadable

#: Where no persistence daemon runs, the driver takes a second or two a GPU.
_WITHIN_S: Final = 60.0
_COMMAND: Final = (sys.executable, "-m", "nodeagent.nvml")
#: The folder of our packages, wherever they are installed.
_ROOT: Final = Path(__file__).parents[1]


class _Said(msgspec.Struct, frozen=True):
    """What the process prints: a Machine, or why there is none."""

    message: str = ""


async def read_aside(command: Sequence[str] = _COMMAND, *, within_s: float = _WITHIN_S) -> Machine | Unreadable:
    """Read them. Never raises for what a driver can cause."""
    try:
        with anyio.fail_after(within_s):
            done = await anyio.run_process(command, check=False, stderr=subprocess.PIPE, cwd=_ROOT)
    except TimeoutError:
        return Unreadable(f"the driver did not answer within {within_s:g} s")
    except OSError as error:
        return Unreadable(f"{command[0]} could not be started: {error.strerror}")
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Unreadable(f"reading the GPUs ended with {done.returncode}: {last[:200]}")
    try:
        if message := msgspec.json.decode(done.stdout, type=_Said).message:
            return Unreadable(message)
        return msgspec.json.decode(done.stdout, type=Machine)
    except msgspec.DecodeError as error:
        return Unreadable(f"reading the GPUs printed something else: {error}")
