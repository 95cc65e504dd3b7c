"""Which writes a process may still send, and until when one that it has sent may land.

A leader's write must have landed, or be dead, before its lease is over. A request spends time on its way (a connection
to be made, a queue, the network), then time in the server, and only the second is bounded by ``?timeout=``. So what is
left of the lease is shared out: we wait for the answer no longer than ``wait_s`` and then break the connection off, so
the request arrives within that or never, and the server gives it up ``server_s`` later. Both together are within the
lease. Held back for longer than that it can only be by something between us and the server; then the preconditions
that every write carries are what is left (docs/design/protocol.md).

The lease is looked at before each write, on the event loop's monotonic clock, and the transport looks once more right
before the bytes leave (kube/client/http.py). That is why the election needs no thread of its own: renewals from a
thread would keep a leader in office whose work is stuck, and a process that was stopped finds its lease over at its
next write, whether or not any timer has fired since.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import msgspec

from kube.client.errors import ApiError, TooLate

#: How much longer than the server we wait, so that its own "timed out" still reaches us.
CLIENT_MARGIN_S: Final = 1.0
#: A server time-out below this is not worth a write: it would end in a time-out more often than not.
LEAST_WRITE_S: Final = 0.5


class WriteTimes(msgspec.Struct, frozen=True, gc=False):
    """How long the server may work on a write, and how long we wait for its answer."""

    server_s: float
    wait_s: float


class WriteFence:
    """Lets writes through as long as all their effects come before ``until()``, a time of the event loop."""

    def __init__(self, until: Callable[[], float] = lambda: math.inf) -> None:
        self._until = until
        self._is_closed = False
        #: Writes under way -> until when each may land.
        self._under_way: dict[object, float] = {}
        self._unknown_until = -math.inf
        self._idle = anyio.Event()

    @contextmanager
    def write(self, most_s: float) -> Iterator[WriteTimes]:
        """Time-outs for one write, which is sent and answered inside; ``most_s`` is the most that the server gets.

        Raises TooLate when it may not be sent any more.
        """
        times = self._times(most_s)
        ticket = object()
        lands_until = self._under_way[ticket] = anyio.current_time() + times.wait_s + times.server_s
        is_settled = False
        try:
            yield times
            is_settled = True
        except ApiError as error:
            is_settled = not error.outcome_unknown
            raise
        finally:
            del self._under_way[ticket]
            if not is_settled:
                self._unknown_until = max(self._unknown_until, lands_until)
            if not self._under_way:
                self._idle.set()

    @property
    def lands_until(self) -> float:
        """Time of the event loop after which nothing that was sent through here can land any more."""
        return max(self._unknown_until, *self._under_way.values(), -math.inf)

    def close(self) -> None:
        """Let nothing through any more; what is under way goes on."""
        self._is_closed = True

    async def settled(self) -> None:
        """Wait until no write is under way."""
        while self._under_way:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _times(self, most_s: float) -> WriteTimes:
        if self._is_closed:
            raise TooLate("not written: this process is ending")
        left_s = self._until() - anyio.current_time()
        server_s = min(most_s, (left_s - CLIENT_MARGIN_S) / 2)
        if server_s < LEAST_WRITE_S:
            needed_s = 2 * LEAST_WRITE_S + CLIENT_MARGIN_S
            raise TooLate(f"not written: the lease has {max(left_s, 0.0):.1f} s left, {needed_s} s needed")
        return WriteTimes(server_s, server_s + CLIENT_MARGIN_S)
