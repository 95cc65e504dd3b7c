"""Makes frames of changes, at a limited rate, and wakes the readers that wait for a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import anyio
import anyio.lowlevel

from cli.inspection.values import UnusableView
from cli.page.frames import Frames
from cli.page.objects import Objects
from kube.watch.signal import Signal

#: Four a second: more than anybody reads, and a burst of changes is drawn once.
EVERY_S: Final = 0.25
#: Nodes that are drawn before other tasks get a turn (some ms).
_NODES_PER_TURN: Final = 4


class Publishing:
    """The frames of objects, which are made by ``make`` and wake this when they change."""

    def __init__(
        self, epoch: str, *, every_s: float = EVERY_S, make: Callable[[Callable[[], None]], Objects] = Objects
    ) -> None:
        self.wake = Signal()
        self.objects = make(self.wake.set)
        self.frames = Frames(self.objects, epoch)
        self._every_s = every_s
        self._next = anyio.Event()
        #: Set when all that was there has been drawn, which may be nothing.
        self.begun = anyio.Event()

    async def run(self) -> None:
        """Draw until cancelled; the first frame at once."""
        while True:
            before = self.frames.revision
            for number, _ in enumerate(self.frames.draw(), 1):
                if number % _NODES_PER_TURN == 0:
                    await anyio.lowlevel.checkpoint()
            if self.frames.revision != before:
                self._tell()
            self.begun.set()
            await anyio.sleep(self._every_s)
            await self.wake.wait()

    def note_unusable(self, found: Iterable[UnusableView]) -> None:
        """Show these free GPUs that fit no pod from the next frame on."""
        self.frames.note_unusable(found)
        self.wake.set()

    async def wait_beyond(self, revision: int) -> None:
        """Wait until there is a newer frame."""
        while self.frames.revision <= revision:
            await self._next.wait()

    def _tell(self) -> None:
        told, self._next = self._next, anyio.Event()
        told.set()
