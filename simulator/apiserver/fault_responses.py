"""Refusals as HTTP answers, and what of a watch's lines reaches the client when a fault strikes them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable

import anyio

from kube.client.errors import Unreachable
from kube.client.transport import Response
from simulator.apiserver.faults import End, Fault
from simulator.apiserver.refusals import NoSuchGroup, Refusal, expired
from simulator.apiserver.watchlog import event_line

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


HEADERS = {"content-type": "application/json"}

_PROSE = b"<html><body>no server is available to handle this request</body></html>"
_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def injected_refusal(fault: Fault) -> Response:
    """Return the answer of a fault that refuses a request."""
    if fault.in_prose:
        return Response(fault.refuse_with, {"content-type": "text/html"}, _PROSE)
    reason = _REASONS.get(fault.refuse_with, "")
    refusal = Refusal(fault.refuse_with, reason, f"injected: {reason or fault.refuse_with}")
    if fault.refuse_with == 429:
        refusal.retry_after_s = fault.retry_after_s
    return refusal_response(refusal)


def refusal_response(refusal: Refusal) -> Response:
    """Return a refusal as an HTTP answer."""
    if isinstance(refusal, NoSuchGroup):
        return Response(refusal.code, {"content-type": "text/plain; charset=utf-8"}, refusal.body())
    if refusal.retry_after_s is None:
        return Response(refusal.code, HEADERS, refusal.body())
    return Response(refusal.code, {**HEADERS, "retry-after": str(refusal.retry_after_s)}, refusal.body())
