"""Waking one waiter: the hinge between synchronous sinks and the loop that acts on what they took in."""

from __future__ import annotations

import anyio


class Signal:
    """Wakes one waiter for any number of changes since it last waited."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the waiter, or let its next wait return at once."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for a change."""
        await self._event.wait()
        self._event = anyio.Event()
