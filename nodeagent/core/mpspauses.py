"""Servers of MPS to which no command is sent for a while, because one got no answer. Pure: the time is passed in.

A GPU that hangs keeps each command about its server waiting. Asked at every look, it would take the time of the others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

_FIRST_NS: Final = 10 * 10**9
_LONGEST_NS: Final = 60 * 10**9


@dataclass(frozen=True, slots=True)
class _Pause:
    length_ns: int
    until_ns: int
    why: str


class Pauses:
    """Times are of the monotonic clock. A server's pause doubles while its commands get no answer."""

    def __init__(self) -> None:
        self._paused: dict[str, _Pause] = {}

    def why(self, server: str, now_ns: int) -> str:
        """Return why no command is sent to it now; "" if commands are."""
        pause = self._paused.get(server)
        return pause.why if pause is not None and now_ns < pause.until_ns else ""

    def begin(self, server: str, now_ns: int, why: str) -> None:
        """Begin a pause, after a command that got no answer. ``why``: which one."""
        last = self._paused.get(server)
        pause_ns = _FIRST_NS if last is None else min(2 * last.length_ns, _LONGEST_NS)
        self._paused[server] = _Pause(pause_ns, now_ns + pause_ns, why)

    def end(self, server: str) -> None:
        """End a pause, after a command that was answered."""
        self._paused.pop(server, None)

    def keep(self, servers: Collection[str]) -> None:
        """Forget others than these."""
        self._paused = {server: paused for server, paused in self._paused.items() if server in servers}
