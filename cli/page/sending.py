"""How an answer of the page is sent: headers of a careful page, JSON, gzip, and an end for who does not read.

Nothing of what pods and people have written gets into HTML here: it goes out as JSON, and the page makes text of it.
"""

from __future__ import annotations

import functools
import gzip
import logging
import re
from collections.abc import Awaitable
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from aiohttp import web

from cli.page.access import Turned
from cli.page.values import State

_log: Final = logging.getLogger(__name__)
#: A value as JSON.
encode: Final = msgspec.json.Encoder().encode

_LEVEL: Final = 5
#: An answer is sent in pieces, each of which has to be read within a time: more than aiohttp sends without waiting.
_PIECE_BYTES: Final = 128 * 1024
#: Nothing from elsewhere, nothing inline, nothing that makes code or HTML of a text, and no frame around it.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_NO_WEIGHT: Final = re.compile(r"q=0(\.0*)?")


# --- answers ---------------------------------------------------------------------------------------------------------
async def stated(request: web.Request, state: State, *, level: int = _LEVEL) -> web.Response:
    """A state, compressed where the reader accepts gzip: a large cluster is some megabytes, of few different words."""
    body = encode(state)
    is_packed = accepts_gzip(request.headers.get("Accept-Encoding", ""))
    if is_packed:
        body = await anyio.to_thread.run_sync(functools.partial(gzip.compress, compresslevel=level), body)
    answer = web.Response(body=body, content_type="application/json", headers={"Vary": "Accept-Encoding"})
    if is_packed:
        answer.headers["Content-Encoding"] = "gzip"
    return answer


def accepts_gzip(header: str) -> bool:
    """Whether an ``Accept-Encoding`` header names gzip (or every coding) with a weight above 0 (RFC 9110, 12.5.3)."""
    weights: dict[str, bool] = {}
    for entry in header.lower().split(","):
        coding, _, weight = (part.strip() for part in entry.partition(";"))
        weights[coding] = not _NO_WEIGHT.fullmatch(weight.replace(" ", ""))
    return weights.get("gzip", weights.get("*", False))


def told(status: int, why: str) -> web.Response:
    """Why there is no other answer."""
    return web.Response(status=status, body=encode({"error": why}), content_type="application/json")


def turned(why: Turned) -> web.Response:
    """Return why somebody is turned away."""
    answer = told(why.status, why.why)
    if why.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


# --- sending ---------------------------------------------------------------------------------------------------------
async def send_whole(request: web.Request, answer: web.Response, *, unread_s: float) -> web.StreamResponse:
    """Send it here and in pieces: aiohttp would wait for ever until all of it was read."""
    body = answer.body
    assert isinstance(body, bytes)  # noqa: S101 - all that is made here
    sent = web.StreamResponse(status=answer.status, headers=answer.headers)
    sent.content_length = len(body)
    if request.transport is not None:
        # What waits to be sent is to wait here, where it has an end, and not in a connection that is to be closed.
        request.transport.set_write_buffer_limits(0)
    try:
        await sent.prepare(request)
        for start in range(0, len(body) if request.method != "HEAD" else 0, _PIECE_BYTES):
            await send(request, sent.write(body[start : start + _PIECE_BYTES]), unread_s=unread_s)
        await send(request, sent.write_eof(), unread_s=unread_s)
    except ConnectionError:
        _log.debug("a reader has gone")
    return sent


async def send(request: web.Request, writing: Awaitable[None], *, unread_s: float) -> None:
    """Await a write. Raises ConnectionError for a reader that has gone, or reads nothing for this time."""
    try:
        with anyio.fail_after(unread_s):
            await writing
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # else what is not read yet would be waited for
        raise ConnectionAbortedError("a reader does not read") from None
