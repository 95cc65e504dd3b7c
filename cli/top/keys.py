"""Keys that are pressed on a terminal, one by one and without an echo."""

from __future__ import annotations

import contextlib
import os
import re
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
_ESCAPE: Final = "\x1b"
#: A control sequence (ECMA-48, 5.4), a key of a keypad, or a character; each as far as it has come.
_SENT: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|O.?|.?)|.", re.DOTALL)


def named(read: str) -> list[str]:
    """Tell keys in what a terminal has sent: names, or the characters themselves. What means nothing is left out."""
    keys = (_NAMES.get(sent, sent) for sent in _SENT.findall(read))
    return [key for key in keys if not key.startswith(_ESCAPE)]


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


async def pressed() -> list[str] | None:
    """Wait for keys; None: the terminal is gone."""
    await anyio.wait_readable(sys.stdin)
    read = os.read(sys.stdin.fileno(), _MOST_BYTES)
    return named(read.decode(errors="ignore")) if read else None
