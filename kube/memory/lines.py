"""What of a watch's lines reaches the client when a fault strikes them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable

import anyio

from kube.client.errors import Unreachable
from kube.memory.faults import End, Fault
from kube.memory.refusals import expired
from kube.memory.watchlog import event_line

_TOO_OLD = "The resourceVersion for the provided watch is too old."


class BrokenOff(Unreachable):
    """Raised where a watch ends inside a line, of which ``rest`` came through, or its connection breaks."""

    def __init__(self, rest: bytes, *, closes: bool) -> None:
        super().__init__("injected: the watch broke off")
        self.rest = rest
        #: The stream ends as if all were said; else the connection breaks.
        self.closes = closes


def expired_line() -> bytes:
    """Return the line that ends a watch whose version is too old."""
    return event_line("ERROR", expired(_TOO_OLD).body())


async def come_through(lines: AsyncIterable[bytes], fault: Fault, struck: Callable[[], None]) -> AsyncIterator[bytes]:
    """Yield the lines that reach the client; ``struck`` is called when the fault happens. Raises BrokenOff."""
    passed = 0
    async for line in lines:
        if fault.line_delay_s:
            await anyio.sleep(fault.line_delay_s)
            struck()
        if fault.end is End.NOT or passed != fault.after_lines:
            yield line
        else:
            struck()
            if (last := await _struck(line, fault)) is not None:
                yield last
            if fault.end is not End.GARBLES:
                return
        passed += 1


async def _struck(line: bytes, fault: Fault) -> bytes | None:
    """Return what comes in place of a line; None for nothing."""
    match fault.end:
        case End.BREAKS:
            raise BrokenOff(b"", closes=False)
        case End.BREAKS_INSIDE | End.CLOSES_INSIDE:
            raise BrokenOff(fault.cut(line), closes=fault.end is End.CLOSES_INSIDE)
        case End.GARBLES:
            return fault.cut(line)
        case End.EXPIRES:
            return expired_line()
        case End.FALLS_SILENT:
            await anyio.sleep_forever()
        case End.CLOSES | End.NOT:
            pass
    return None
