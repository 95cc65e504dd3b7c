"""The agent's end of the warden's socket: caps down, reports up.

Caps are sent whole when they change and when the warden was started again. Without a warden, or with one that does not
answer, the agent goes on: nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ByteStream

from nodeagent.core.judging import Key
from nodeagent.core.messages import Frames, MalformedMessage, Report, read_report, write_caps

#: Between two tries to reach a warden that is not there: it is started after the agent, or again.
_RETRY_S: Final = 1.0
_SEND_S: Final = 5.0
_READ_BYTES: Final = 1 << 16


class WardenLink:
    """``on_report`` hears each report, ``say`` why a connection ended."""

    def __init__(self, path: Path, *, on_report: Callable[[Report], None], say: Callable[[str], None]) -> None:
        self._path = path
        self._on_report = on_report
        self._say = say
        self._said = ""
        self._caps: Mapping[Key, int] = {}
        self._changed = anyio.Event()

    def cap(self, caps: Mapping[Key, int]) -> None:
        """Have the warden go by these caps from now on."""
        if caps != self._caps:
            self._caps = dict(caps)
            self._changed.set()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            try:
                stream = await anyio.connect_unix(str(self._path))
            except OSError as error:
                self._tell(f"no warden: {error}")
            else:
                async with stream:
                    await self._talk(stream)
            await anyio.sleep(_RETRY_S)

    def _tell(self, why: str) -> None:
        """Say it once, until there was a report again."""
        if why != self._said:
            self._said = why
            self._say(why)

    async def _talk(self, stream: ByteStream) -> None:
        """Send and hear until either fails."""
        async with anyio.create_task_group() as tasks:
            for part in (self._send, self._hear):
                tasks.start_soon(self._until_it_fails, part, stream, tasks.cancel_scope)

    async def _until_it_fails(
        self, part: Callable[[ByteStream], Awaitable[None]], stream: ByteStream, scope: anyio.CancelScope
    ) -> None:
        try:
            await part(stream)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            self._tell(f"no warden: {str(error) or type(error).__name__}")
        except anyio.EndOfStream:
            self._tell("no warden: it closed the connection")
        except MalformedMessage as error:
            self._tell(f"no warden: what it sent is no report: {error}")
        scope.cancel()

    async def _send(self, stream: ByteStream) -> None:
        while True:
            self._changed = anyio.Event()
            with anyio.fail_after(_SEND_S):
                await stream.send(write_caps(self._caps))
            await self._changed.wait()

    async def _hear(self, stream: ByteStream) -> None:
        frames = Frames()
        while True:
            for message in frames.cut(await stream.receive(_READ_BYTES)):
                report = read_report(message)
                self._said = ""
                self._on_report(report)
