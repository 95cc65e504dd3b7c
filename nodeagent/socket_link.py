"""The agent's end of a socket of its node: what is wanted goes down, reports come up.

What is wanted is sent whole when it changes and when the other end was started again. Without the other end, or with
one that does not answer, the agent goes on: nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ByteStream

from nodeagent.core.enforcement.messages import Frames, MalformedMessage

#: Between two tries to reach what is not there: it is started after the agent, or again.
_RETRY_S: Final = 1.0
_SEND_S: Final = 5.0
_READ_BYTES: Final = 1 << 16


class SocketLink:
    """``peer``: what the other end is called. ``wanted``: the first message for it; None: none before ``want``.

    ``hear`` takes each message, or raises MalformedMessage. ``say`` gets why a connection ended, once until there
    was a report again.
    """

    def __init__(
        self, path: Path, *, peer: str, wanted: bytes | None, hear: Callable[[bytes], None], say: Callable[[str], None]
    ) -> None:
        self._path = path
        self._peer = peer
        self._wanted = wanted
        self._hear_message = hear
        self._say = say
        self._said = ""
        self._changed = anyio.Event()

    def want(self, message: bytes) -> None:
        """Have the other end go by this from now on."""
        self._wanted = message
        self._changed.set()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            try:
                stream = await anyio.connect_unix(str(self._path))
            except OSError as error:
                self._tell(str(error))
            else:
                async with stream:
                    await self._talk(stream)
            await anyio.sleep(_RETRY_S)

    def _tell(self, why: str) -> None:
        """Say it once, until there was a report again."""
        if why != self._said:
            self._said = why
            self._say(f"no {self._peer}: {why}")

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
            self._tell(str(error) or type(error).__name__)
        except anyio.EndOfStream:
            self._tell("it closed the connection")
        except MalformedMessage as error:
            self._tell(f"what it sent is no report: {error}")
        scope.cancel()

    async def _send(self, stream: ByteStream) -> None:
        while True:
            self._changed = anyio.Event()
            if self._wanted is not None:
                with anyio.fail_after(_SEND_S):
                    await stream.send(self._wanted)
            await self._changed.wait()

    async def _hear(self, stream: ByteStream) -> None:
        frames = Frames()
        while True:
            for message in frames.cut(await stream.receive(_READ_BYTES)):
                self._hear_message(message)
                self._said = ""
