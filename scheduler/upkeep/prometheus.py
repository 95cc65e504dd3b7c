"""Asks a Prometheus over HTTP: one query at a time, with an end to the time it takes and to the answer's size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec

from scheduler.settings import UseSource

#: What 10,000 queues take is a tenth of that.
MOST_BYTES: Final = 16 << 20
_MOST_BYTES_OF_ERROR: Final = 4096
_SHOWN: Final = 200


class NoAnswer(Exception):
    """Raised when there is no answer; says why, in one line."""


class Prometheus:
    """One server. Use it inside ``asking`` only."""

    def __init__(self, session: aiohttp.ClientSession, source: UseSource) -> None:
        self._session = session
        self._url = f"{source.url.rstrip('/')}/api/v1/query"
        self._timeout_s = source.timeout_s

    async def ask(self, query: str, at_s: int) -> bytes:
        """The answer to an instant query, as of a time in seconds since the epoch. Raises NoAnswer."""
        form = {"query": query, "time": str(at_s), "timeout": f"{self._timeout_s:g}s"}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.post(self._url, data=form, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise NoAnswer(await _refusal(response))
                return await _bounded(response, MOST_BYTES)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_in_one_line(str(error) or type(error).__name__)) from error


@asynccontextmanager
async def asking(source: UseSource) -> AsyncIterator[Prometheus]:
    """A Prometheus that can be asked."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1),
        headers={"User-Agent": "moorage", "Accept": "application/json", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        trust_env=False,
        auto_decompress=False,
    ) as session:
        yield Prometheus(session, source)


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """What a server says that refuses; Prometheus says it in JSON."""
    body = await response.content.read(_MOST_BYTES_OF_ERROR)
    try:
        said = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        said = ""
    return _in_one_line(f"HTTP {response.status} {said or response.reason or ''}".rstrip())


class _Refusal(msgspec.Struct):
    error: str = ""


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise NoAnswer(f"the answer is larger than {most >> 20} MiB")
    return bytes(body)


def _in_one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:_SHOWN]
