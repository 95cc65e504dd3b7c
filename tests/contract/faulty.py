"""The same mishaps without a network: a Transport that lets them happen before another one, in virtual time, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio

from kube.client.errors import Unreachable
from kube.client.transport import Response, Transport
from tools.mishaps import NOTHING, End, Fate, Kind, Mishap, expired_event, status


class FaultyTransport:
    """Does to requests of ``inner`` what tools/faultyproxy.py does on a connection."""

    def __init__(self, inner: Transport, *, fate: Fate, page: int) -> None:
        self._inner = inner
        self._fate = fate
        self._page = page

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float,
    ) -> Response:
        mishap = self._fate.deal(Kind.READ if method == "GET" else Kind.WRITE)
        if (refusal := await self._before(mishap)) is not None:
            return refusal
        if "limit" in query:
            query = {**query, "limit": str(self._page)}
        answer = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, timeout_s=timeout_s
        )
        if mishap.lost or mishap.end is not End.NOT:
            self._fate.struck(mishap)
            raise Unreachable(mishap.name)
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        mishap = self._fate.deal(Kind.WATCH)
        if (refusal := await self._before(mishap)) is not None:
            yield refusal, _nothing()
            return
        async with self._inner.stream(path, query=query, timeout_s=timeout_s) as (head, lines):
            yield head, self._lines(lines, mishap)

    async def _before(self, mishap: Mishap) -> Response | None:
        if mishap.delay_s:
            await anyio.sleep(mishap.delay_s)
            self._fate.struck(mishap)
        if mishap.lost == "request":
            self._fate.struck(mishap)
            raise Unreachable(mishap.name)
        if not mishap.refuse_with:
            return None
        self._fate.struck(mishap)
        headers = {"retry-after": str(mishap.retry_after_s)} if mishap.retry_after_s else {}
        return Response(mishap.refuse_with, headers, b"<html>" if mishap.in_prose else status(mishap.refuse_with))

    async def _lines(self, lines: AsyncIterator[bytes], mishap: Mishap) -> AsyncIterator[bytes]:
        passed = 0
        async for line in lines:
            if mishap.line_delay_s:
                await anyio.sleep(mishap.line_delay_s)
                self._fate.struck(mishap)
            if mishap.end is End.NOT or passed != mishap.after_lines:
                yield line
            else:
                self._fate.struck(mishap)
                match mishap.end:
                    case End.CLOSES:
                        return
                    case End.GARBLES:
                        yield mishap.cut(line)
                    case End.EXPIRES:
                        yield expired_event()
                        return
                    case End.FALLS_SILENT:
                        await anyio.sleep_forever()
                    case _:
                        raise Unreachable(mishap.name)
                mishap = NOTHING
            passed += 1


async def _nothing() -> AsyncIterator[bytes]:
    no_lines: tuple[bytes, ...] = ()
    for line in no_lines:
        yield line
