"""Replicas of an older version beside replicas of this one: the older version is made on the wire, of the same code.

An older version does not know the newest optional fields of a book's entry. So on its way to such a replica each of
them gets a name that no version knows, and on the way back it gets its own name again: what the replica keeps of a
field that it does not know arrives as it was, and what it drops is lost. The same holds for hand-overs and grants,
which bring those fields into a book. A record that asks for what the older version does not know is of a version that
it does not know. Of what the replica writes itself the fields are left out: the older version has none of them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from kube.client.transport import JSON, OBJECT_BYTES, Response, Transport
from simulator.apiserver.transport import MemoryTransport
from simulator.components import Parts
from wire import names

#: Optional fields of a book's entry (gpu/book.py), the oldest first.
FIELDS: Final = ("grace_s", "mode", "compute_percent", "cap_mib", "cap_nano")

_BOOKED: Final = (names.TENANTS, names.HANDOVER, names.GRANT)
#: What stands before the name of a field that is not known.
_LATER: Final = "later_"
_RECORDED: Final[Mapping[str, str]] = {"mode": "mode", "compute_percent": "computePercent"}
_VERSION: Final = re.compile(r'"version":\d+')
_NO_VERSION: Final = '"version":9'

Json = dict[str, Any]


@dataclass(slots=True)
class Versions:
    """Which replicas are of an older version: name -> the fields that it lacks. It counts from their next start."""

    older: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def beside(self, parts: Parts) -> Parts:
        """The same parts, with the older version where a replica is of it."""

        def wire(user: str, transport: MemoryTransport) -> Transport:
            lacks = self.older.get(user, ())
            wired = parts.wire(user, transport)
            return OlderVersion(wired, lacks) if lacks else wired

        return replace(parts, wire=wire)


class OlderVersion:
    """A connection over which its replica reads and writes as a version without the fields that it ``lacks``."""

    def __init__(self, inner: Transport, lacks: Iterable[str]) -> None:
        self._inner = inner
        lacks = sorted(lacks)
        known = "|".join(lacks)
        self._known = re.compile(rf'"({known})":')
        self._own = re.compile(rf',"(?:{known})":(?:"[^"]*"|\d+)')
        self._hidden = re.compile(rf'"{_LATER}({known})":')
        recorded = "|".join(_RECORDED[name] for name in lacks if name in _RECORDED)
        self._asked = re.compile(rf'"(?:{recorded})":') if recorded else None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        """Send what the older version would; answer with what it would read."""
        sent = _changed(body, self._written) if body else body
        answer = await self._inner.request(
            method,
            path,
            query=query,
            body=sent,
            content_type=content_type,
            accept=accept,
            timeout_s=timeout_s,
            most_bytes=most_bytes,
        )
        return Response(answer.status, answer.headers, _changed(answer.body, self._read))

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Watch what it would read."""
        return self._stream(path, query=query, accept=accept, timeout_s=timeout_s)

    @asynccontextmanager
    async def _stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        async with self._inner.stream(path, query=query, accept=accept, timeout_s=timeout_s) as (head, lines):
            yield head, self._lines(lines)

    async def _lines(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            yield _changed(line, self._read)

    def _read(self, key: str, text: str) -> str:
        if key in _BOOKED:
            return self._known.sub(rf'"{_LATER}\1":', text)
        if key == names.GPU_RECORD and self._asked is not None and self._asked.search(text):
            return _VERSION.sub(_NO_VERSION, text, count=1)
        return text

    def _written(self, key: str, text: str) -> str:
        return self._hidden.sub(r'"\1":', self._own.sub("", text)) if key in _BOOKED else text


def _changed(text: bytes, change: Callable[[str, str], str]) -> bytes:
    """An object, a list of them or a line of a watch, with its annotations changed; what has none stays as it is."""
    if not any(key.encode() in text for key in (*_BOOKED, names.GPU_RECORD)):
        return text
    said = msgspec.json.decode(text)
    if not isinstance(said, dict):
        return text
    for obj in said.get("items") or [said.get("object", said)]:
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        annotations.update({key: change(key, value) for key, value in annotations.items() if isinstance(value, str)})
    return msgspec.json.encode(said)
