"""Servers of MPS to which no command is sent for a while, because one got no answer. Pure: the time is passed in.

A GPU that hangs keeps each command about its server waiting. Asked at every look, it would take the time of the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_FIRST_NS: Final = 10 * 10**9
_LONGEST_NS: Final = 60 * 10**9


class Pauses:
    """Times are of the monotonic clock. A server's pause doubles while its commands get no answer."""

    def __init__(self) -> None:
        #: Server -> its last pause, and until when it lasts.
        self._paused: dict[str, tuple[int, int]] = {}

    def lasts(self, server: str, now_ns: int) -> bool:
        """Whether no command is sent to it now."""
        return server in self._paused and now_ns < self._paused[server][1]

    def begin(self, server: str, now_ns: int) -> None:
        """A command got no answer."""
        last_ns = self._paused.get(server, (0, 0))[0]
        pause_ns = min(2 * last_ns, _LONGEST_NS) or _FIRST_NS
        self._paused[server] = (pause_ns, now_ns + pause_ns)

    def end(self, server: str) -> None:
        """A command was answered."""
        self._paused.pop(server, None)

    def keep(self, servers: Collection[str]) -> None:
        """Forget others than these."""
        self._paused = {server: paused for server, paused in self._paused.items() if server in servers}
