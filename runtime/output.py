"""What commands print, in the encoding of the terminal or file, as JSON or YAML; and how far they are.

Progress is lines on stderr while a command takes long, so that nobody takes it for one that hangs.
"""

from __future__ import annotations

import codecs
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

_HANDLER: Final = "moorage-in-ascii"
#: Drawn by us and by rich: of the same width, or lines would wrap.
_DRAWN: Final = {"…": "~", "█": "#", "▒": "%", "░": "."}


def lets_all_through() -> None:
    r"""Have stdout write in ASCII what its encoding can't, instead of ending with a traceback.

    ``\u2026`` stands for it then, or what looks like it. That stderr does so is Python's default.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        codecs.register_error(_HANDLER, _in_ascii)
        sys.stdout.reconfigure(errors=_HANDLER)


def write(value: Any, output: str) -> None:
    """Print structs or plain values as ``json`` or ``yaml``."""
    import msgspec  # main.py imports this module

    # The same when it is read again: with escapes where the encoding may not have it.
    is_unicode = codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")
    encoded = msgspec.json.format(msgspec.json.encode(value))
    if output == "yaml":
        import yaml  # for those who ask for it

        plain = msgspec.json.decode(encoded)
        yaml.safe_dump(plain, sys.stdout, sort_keys=False, allow_unicode=is_unicode, width=120)
    else:
        text = encoded.decode()
        sys.stdout.write((text if is_unicode else "".join(map(_escaped, text))) + "\n")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_DRAWN.get(each) or _escaped(each) for each in error.object[error.start : error.end]), error.end


def _escaped(character: str) -> str:
    """As JSON has it: in UTF-16."""
    if character.isascii():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


AFTER_S: Final = 2.0
EVERY_S: Final = 5.0


class Progress:
    """Says what a command is doing, from two seconds after this was made on. ``now_s``: a clock that never goes back.

    ``doing``: what is said where a caller of ``tick`` says nothing else.
    """

    def __init__(
        self, doing: str = "", *, out: TextIO | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.doing = doing
        self._out = sys.stderr if out is None else out
        self._now_s = now_s
        self._next_s = now_s() + AFTER_S

    def tick(self, say: Callable[[], str] | None = None) -> None:
        """Write a line if it is time for one. ``say`` is only called then, so it may count."""
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        if self._out.isatty():
            self._out.write(f"moorage: {say() if say is not None else self.doing} ...\n")
            self._out.flush()

    @contextmanager
    def waiting(self, say: Callable[[], str] | None = None) -> Iterator[None]:
        """Tick while the event loop waits in this block. Not for a loop of virtual time, which never waits."""
        import asyncio  # commands that read files only do without it

        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def begin() -> None:
            timers[:] = [loop.call_later(max(self._next_s - self._now_s(), 0.0), again)]

        def again() -> None:
            self.tick(say)
            begin()

        begin()
        try:
            yield
        finally:
            timers[0].cancel()
