"""When events were written, as one light watch saw it: those with the reason of a binding, the same for any scheduler.

The server picks them out (a field selector), and one line in so many bytes is all that is read: nothing is decoded.
"""

from __future__ import annotations

import math

import anyio
import msgspec
from anyio.abc import TaskStatus

from kube.client.api import check
from kube.client.transport import Transport

_TIMEOUT_S = 10.0
_ADDED = b'{"type":"ADDED"'


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _List(msgspec.Struct, frozen=True):
    metadata: _Head


class EventWatch:
    """Counts the "Scheduled" events that are written to a namespace. Times are the event loop's."""

    def __init__(self, transport: Transport, path: str) -> None:
        self.count = 0
        self.last_at = -math.inf
        self._transport = transport
        self._path = path
        self._more = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch from now on, until cancelled. Raises RuntimeError when the server ends the watch."""
        listed = check(await self._transport.request("GET", self._path, query={"limit": "1"}, timeout_s=_TIMEOUT_S))
        version = msgspec.json.decode(listed.body, type=_List).metadata.resource_version
        query = {"watch": "true", "fieldSelector": "reason=Scheduled", "resourceVersion": version}
        async with self._transport.stream(self._path, query=query, timeout_s=_TIMEOUT_S) as (answer, lines):
            check(answer)
            task_status.started()
            async for line in lines:
                if line.startswith(_ADDED):
                    self.count += 1
                    self.last_at = anyio.current_time()
                    self._more.set()
        raise RuntimeError("the watch of events has ended")

    async def written(self, count: int, *, within_s: float) -> None:
        """Wait for so many events. Raises TimeoutError with how many there are."""
        with anyio.move_on_after(within_s):
            while self.count < count:
                self._more = anyio.Event()
                await self._more.wait()
        if self.count < count:
            raise TimeoutError(f"{self.count} of {count} events were written within {within_s:.0f} s")
