"""The agent's end of the warden's socket: caps down, reports up (nodeagent/socketlink.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nodeagent.core.judging import Key
from nodeagent.core.messages import Report, read_report, write_caps
from nodeagent.socketlink import SocketLink


class WardenLink:
    """``on_report`` hears each report, ``say`` why a connection ended."""

    def __init__(self, path: Path, *, on_report: Callable[[Report], None], say: Callable[[str], None]) -> None:
        self._caps: Mapping[Key, int] = {}
        self._link = SocketLink(
            path, peer="warden", wanted=write_caps({}), hear=lambda said: on_report(read_report(said)), say=say
        )

    def cap(self, caps: Mapping[Key, int]) -> None:
        """Have the warden go by these caps from now on."""
        if caps != self._caps:
            self._caps = dict(caps)
            self._link.want(write_caps(caps))

    async def run(self) -> None:
        """Stay connected until cancelled."""
        await self._link.run()
