"""Keys that are pressed on a terminal, one by one and without an echo."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Final

import anyio

#: What terminals send for keys that have no character.
_NAMES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    " ": "page-down",
    "k": "up",
    "j": "down",
}
_MOST_BYTES: Final = 64


def named(read: str) -> list[str]:
    """Tell keys in what a terminal has sent: names, or the characters themselves; unknown sequences are left out."""
    keys = []
    while read:
        if read[0] != "\x1b":
            keys.append(_NAMES.get(read[0], read[0]))
            read = read[1:]
            continue
        sequence = next((known for known in _NAMES if known[0] == "\x1b" and read.startswith(known)), "")
        if sequence:
            keys.append(_NAMES[sequence])
        read = read[len(sequence) :] if sequence else ""
    return keys


@contextlib.contextmanager
def listening() -> Iterator[bool]:
    """Let keys be read from stdin while this is open; False where it is no terminal."""
    if not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def pressed() -> list[str]:
    """Wait for keys; none at all: the terminal is gone."""
    await anyio.wait_readable(sys.stdin)
    return named(os.read(sys.stdin.fileno(), _MOST_BYTES).decode(errors="ignore"))
