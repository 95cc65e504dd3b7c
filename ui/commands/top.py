"""What ``kubectl moorage top`` does when it is called: follow, draw what changed, and read keys, until told to end."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from kube.client.clock import Clock
from kube.client.config import plain
from kube.client.retry import TRIES
from kube.watch.signal import Signal
from runtime.client import Reached, reached
from runtime.options import selection
from runtime.options.selection import COLOURS
from runtime.output import Progress
from runtime.process import rng
from runtime.text import line
from ui.leaders import by_server
from ui.page.watch import Following, Publishing, Unusable
from ui.tables import terminal_width
from ui.top.screen import Letters, Screen, View, screen

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


async def keys_pressed() -> list[str] | None:
    """Wait for keys; None: the terminal is gone."""
    await anyio.wait_readable(sys.stdin)
    read = os.read(sys.stdin.fileno(), _MOST_BYTES)
    return named(read.decode(errors="ignore")) if read else None


#: Changes are drawn so often at most.
_EVERY_S: Final = 0.5
#: A terminal may be made larger or smaller, and an API server fall silent, without a change.
_AT_LEAST_EVERY_S: Final = 2.0
#: A cluster that does not answer for so long is given up; one that refuses, at once.
_READ_WITHIN_S: Final = 15.0
#: Of what is no terminal: wide enough for a row of eight, and all lines.
_PLAIN_WIDTH: Final = 140
_EVERYTHING: Final = 1_000_000


def run(arguments: argparse.Namespace) -> int:
    """Show it; 1 if the cluster can't be read. Raises BadInput."""
    return anyio.run(_run, arguments)


async def _run(arguments: argparse.Namespace) -> int:
    async with _source(arguments) as cluster:
        publishing = Publishing("top", every_s=_EVERY_S)
        dated, leaders = by_server(cluster.transport)
        api = cluster.api(dated, tries=TRIES)
        some = selection.namespaces(arguments)
        watching = None if arguments.simulate else leaders
        has_use = arguments.use or arguments.idle
        following = Following(api, publishing.objects, rng=rng(), namespaces=some, leaders=watching, has_use=has_use)
        unusable = Unusable(publishing.objects)
        view = View(terminal_width() or _PLAIN_WIDTH, _EVERYTHING, use=has_use, has_use=has_use, **_how(arguments))
        top = Top(publishing, following, view, unusable, clock=api.clock)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(following.run)
            with anyio.move_on_after(_READ_WITHIN_S):
                await following.begun()
            if not following.is_in_step:
                tasks.cancel_scope.cancel()
                sys.stderr.writelines(f"moorage: {line(trouble)}\n" for trouble in following.troubles())
                return 1
            is_shown_once = arguments.once or not sys.stdout.isatty()
            if is_shown_once:
                with anyio.move_on_after(_READ_WITHIN_S):
                    await following.settled()
            tasks.start_soon(publishing.run)
            await publishing.begun.wait()
            if is_shown_once:
                unusable.count()
                _print(top.drawn())
            else:
                tasks.start_soon(unusable.run)
                await _live(top)
            tasks.cancel_scope.cancel()
    return 0


def _how(arguments: argparse.Namespace) -> dict[str, Any]:
    """How it begins."""
    return {"by": arguments.by, "details": arguments.details, "queues": arguments.queues, "idle": arguments.idle}


@asynccontextmanager
async def _source(arguments: argparse.Namespace) -> AsyncIterator[Reached]:
    """The cluster to look at. Raises BadInput."""
    if arguments.simulate:
        from ui.page.simulated import at_work, of_nodes  # the simulator is for those who ask for it

        async with AsyncExitStack() as stack:
            with Progress("filling the simulated cluster").waiting():
                transport = await stack.enter_async_context(at_work(of_nodes(arguments.nodes)))
            yield Reached(transport, plain("simulated"), None)
        return
    async with reached(arguments, "top") as cluster:
        yield cluster


class Top:
    """What is looked at, and how."""

    def __init__(
        self,
        publishing: Publishing,
        following: Following,
        view: View,
        unusable: Unusable | None = None,
        *,
        clock: Clock,
    ) -> None:
        self.publishing = publishing
        self._unusable = unusable or Unusable(publishing.objects)
        self._following = following
        self._clock = clock
        self._letters = Letters()
        self.view = view
        self._page = 1
        self.is_over = False

    def drawn(self) -> Screen:
        """Draw it as it is now."""
        silent_s = self._following.silent_s()
        notes = list(self._following.idle())
        notes += [f"not read: {trouble}" for trouble in self._following.troubles()]
        notes += [f"the API server has said nothing for {silent_s} s"] if silent_s else []
        view = msgspec.structs.replace(self.view, has_nodes=self._following.has_nodes, now_ns=self._clock.now_ns())
        made = screen(self.publishing.frames.whole(), self._letters, view, notes=notes, unusable=self._unusable.found)
        self.view = msgspec.structs.replace(self.view, top=made.top)
        self._page = made.page
        return made

    def resized(self, width: int, height: int) -> None:
        """Draw for this size from now on."""
        self.view = msgspec.structs.replace(self.view, width=width, height=height)

    def pressed(self, key: str) -> None:
        """Do what a key stands for; others do nothing."""
        moves = {
            "up": -1,
            "down": 1,
            "page-up": -self._page,
            "page-down": self._page,
            "home": -_EVERYTHING,
            "end": _EVERYTHING,
        }
        if key in moves:
            self.view = msgspec.structs.replace(self.view, top=max(0, self.view.top + moves[key]))
        elif key == "d":
            self.view = msgspec.structs.replace(self.view, details=not self.view.details, top=0)
        elif key == "u":
            self.view = msgspec.structs.replace(self.view, queues=not self.view.queues, use=False, top=0)
        elif key == "i" and self.view.has_use:
            self.view = msgspec.structs.replace(self.view, use=not self.view.use, queues=False, top=0)
        elif key == "o" and self.view.use:
            self.view = msgspec.structs.replace(self.view, idle=not self.view.idle, top=0)
        elif key == "b":
            other = next(by for by in COLOURS if by != self.view.by)
            self.view = msgspec.structs.replace(self.view, by=other)
            self._letters = Letters()
        self.is_over = self.is_over or key == "q"


def _print(made: Screen) -> None:
    """Print it for a file or a pipe: without the line about keys."""
    Console(highlight=False, soft_wrap=True).print(Text("\n").join(made.lines[:-1]))


async def _live(top: Top) -> None:
    """Draw until ``q`` or a signal ends it."""
    changed = Signal()
    with listening() as has_keys, Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_note_frames, top, changed)
            tasks.start_soon(_note_signals, top, changed)
            if has_keys:
                tasks.start_soon(_note_keys, top, changed)
            while not top.is_over:
                size = shutil.get_terminal_size()
                top.resized(size.columns, size.lines)
                live.update(Text("\n").join(top.drawn().lines), refresh=True)
                with anyio.move_on_after(_AT_LEAST_EVERY_S):
                    await changed.wait()
            tasks.cancel_scope.cancel()


async def _note_frames(top: Top, changed: Signal) -> None:
    while True:
        await top.publishing.wait_beyond(top.publishing.frames.revision)
        changed.set()


async def _note_signals(top: Top, changed: Signal) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            top.is_over = True
            changed.set()


async def _note_keys(top: Top, changed: Signal) -> None:
    """A terminal that is gone has no keys any more."""
    while (pressed := await keys_pressed()) is not None:
        for key in pressed:
            top.pressed(key)
        changed.set()
    top.is_over = True
    changed.set()
