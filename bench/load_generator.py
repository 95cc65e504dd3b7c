"""Asks webhooks at a steady rate, as the API server does: ``python -m bench.load_generator < ORDER``; prints JSON.

HTTP/1.1 over TLS with connections kept alive, 25 of them at most when idle, and one more whenever all are busy: so does
client-go's transport, of which the API server's webhooks ask for http/1.1. The rate is kept however long answers take,
and each wait counts from the moment at which its review was due: an answer that holds up others shows in all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import re
import ssl
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from bench import processes
from bench.reviews import Recorded

_LOOPBACK: Final = "127.0.0.1"
_IDLE_MOST: Final = 25
#: The most requests that an API server works at at one time (its flags max-requests-inflight, 400, and
#: max-mutating-requests-inflight, 200); further ones wait in its queues.
_AT_ONCE: Final = 600
#: The API server's time-out in our webhook configurations (admission/manifests.py).
GIVE_UP_S: Final = 5.0
_WARM_UP_PER_S: Final = 50.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
#: Headers that a connection writes itself.
_OWN: Final = frozenset({"host", "content-length", "connection"})


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """``pid``: the process that is asked. ``core``: where to run, away from it. The reviews come in turn.

    ``per_s``: 0 is flat out, two at a time.
    """

    port: int
    ca: str
    pid: int
    core: int
    per_s: float
    for_s: float
    reviews: Sequence[Recorded]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """``waits_s``: of each review, from when it was due until it was answered or given up.

    ``late_s``: how late each was sent. ``cpu_s``: what the process that is asked used from the first review to the last
    answer. ``failed``: reviews that were not answered in time, or not with yes, and why the last one was not.
    """

    waits_s: Sequence[float]
    late_s: Sequence[float]
    cpu_s: float
    took_s: float
    connections: int
    failed: int
    why: str = ""


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connections:
    """Go's way: who needs one takes the idle one used last, or else whichever comes first, one that gets idle or a new
    one; new ones that nobody waits for any more are kept as idle.
    """

    def __init__(self, connect: Callable[[], Awaitable[_Connection]], tasks: TaskGroup) -> None:
        self._connect = connect
        self._tasks = tasks
        self._idle: list[_Connection] = []
        self._waiting: deque[asyncio.Future[_Connection]] = deque()
        self.made = 0

    async def take(self) -> _Connection:
        """Have a connection for one request. Raises OSError."""
        if self._idle:
            return self._idle.pop()
        waiting: asyncio.Future[_Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._tasks.start_soon(self._dial, waiting)
        return await waiting

    def give(self, connection: _Connection) -> None:
        """Hand one on that is good."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connection)
                return
        if len(self._idle) < _IDLE_MOST:
            self._idle.append(connection)
        else:
            connection[1].close()

    async def close(self) -> None:
        """Close those that are idle."""
        for _, writer in self._idle:
            writer.close()
        for _, writer in self._idle:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _dial(self, waiting: asyncio.Future[_Connection]) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            if not waiting.done():
                waiting.set_exception(error)
            return
        self.made += 1
        self.give(connection)


class _Caller:
    def __init__(self, order: Order, tasks: TaskGroup) -> None:
        tls = ssl.create_default_context(cadata=order.ca)
        self._connections = _Connections(lambda: asyncio.open_connection(_LOOPBACK, order.port, ssl=tls), tasks)
        self._at_once = anyio.Semaphore(_AT_ONCE)
        self._texts = [_request(each) for each in order.reviews]
        self._made_before = 0
        self.waits_s: list[float] = []
        self.late_s: list[float] = []
        self.failed = 0
        self.why = ""

    @property
    def connections(self) -> int:
        """How many were made since the beginning, or since ``forget``."""
        return self._connections.made - self._made_before

    async def run(self, count: int, per_s: float) -> None:
        """Ask so many reviews at this rate, and wait for all answers."""
        start = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for number, text in zip(range(count), itertools.cycle(self._texts), strict=False):
                due = start + number / per_s
                if due > anyio.current_time():
                    await anyio.sleep_until(due)
                tasks.start_soon(self._ask, text, due)

    async def run_flat_out(self, for_s: float) -> None:
        """Ask two at a time, each next review as soon as one is answered."""
        until = anyio.current_time() + for_s
        texts = itertools.cycle(self._texts)

        async def work() -> None:
            while anyio.current_time() < until:
                await self._ask(next(texts), anyio.current_time())

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(work)

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    def forget(self) -> None:
        """Begin to count anew."""
        self.waits_s, self.late_s, self._made_before = [], [], self._connections.made

    async def _ask(self, text: bytes, due: float) -> None:
        self.late_s.append(anyio.current_time() - due)
        try:
            # Also what waits to be sent is given up, so that a rate that is too high comes to an end.
            with anyio.fail_after(GIVE_UP_S):
                async with self._at_once:
                    status, body = await self._answer(text)
        except (OSError, EOFError) as error:
            self.failed, self.why = self.failed + 1, repr(error)
            return
        finally:
            self.waits_s.append(anyio.current_time() - due)
        if status != b"200" or b'"allowed":true' not in body:
            self.failed, self.why = self.failed + 1, (status + b" " + body[:200]).decode()

    async def _answer(self, text: bytes) -> tuple[bytes, bytes]:
        connection = await self._connections.take()
        reader, writer = connection
        try:
            writer.write(text)
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
        except BaseException:
            writer.close()
            raise
        if found is None:
            writer.close()
        else:
            self._connections.give(connection)
        return head[9:12], body


def _request(recorded: Recorded) -> bytes:
    """One request as bytes."""
    headers = {key: value for key, value in recorded.headers.items() if key.lower() not in _OWN}
    headers |= {"Host": _LOOPBACK, "Content-Length": str(len(recorded.body))}
    head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    return f"POST {recorded.path} HTTP/1.1\r\n{head}\r\n".encode() + recorded.body


async def carried_out(order: Order) -> Told:
    """Warm up with each review, then ask as ordered."""
    async with anyio.create_task_group() as tasks:
        caller = _Caller(order, tasks)
        await caller.run(len(order.reviews), _WARM_UP_PER_S)
        caller.forget()
        before, begun = processes.cpu_s(order.pid), anyio.current_time()
        if order.per_s:
            await caller.run(round(order.per_s * order.for_s), order.per_s)
        else:
            await caller.run_flat_out(order.for_s)
        cpu_s, took_s = processes.cpu_s(order.pid) - before, anyio.current_time() - begun
        await caller.close()
    return Told(
        waits_s=caller.waits_s,
        late_s=caller.late_s,
        cpu_s=cpu_s,
        took_s=took_s,
        connections=caller.connections,
        failed=caller.failed,
        why=caller.why,
    )


def main() -> None:
    """Carry out the order on standard input."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    os.sched_setaffinity(0, {order.core})
    gc.freeze()
    sys.stdout.buffer.write(msgspec.json.encode(anyio.run(carried_out, order)))


if __name__ == "__main__":
    main()
