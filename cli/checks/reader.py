"""Reads of one API server for the checks, and what a check finds.

Objects are raw, since most are of kinds that nothing else here knows.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kube.client.errors import ApiError
from kube.client.listing import WHOLE_BYTES
from kube.client.transport import Response, Transport

_MOST_NAMED = 6


class Level(enum.Enum):
    """How bad it is. Only what fails fails the command."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at. ``do`` says what to do about it, and is "" where nothing is to be done."""

    level: Level
    check: str
    said: str
    do: str = ""


def finding_lines(level: enum.Enum, said: str, do: str = "") -> list[str]:
    """Return the line of a finding, and a second one where something is to be done. Levels are in one column."""
    width = max(len(each.value) for each in type(level))
    return [f"{level.value:{width}}  {said}", *([f"{'':{width}}  -> {do}"] if do else [])]


def some_of(names: list[str]) -> str:
    """Return names for a line: the first few of them, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


Raw = dict[str, Any]

_PAGE: Final = "500"
_TIMEOUT_S: Final = 15.0
_decode: Final = msgspec.json.Decoder(Raw).decode


class CantLook(Exception):
    """Raised when something could not be read, so that nothing can be said about it."""


class Answer(msgspec.Struct, frozen=True):
    """What the API server answered to a trial."""

    status: int
    body: Raw

    @property
    def message(self) -> str:
        """The text of a Status."""
        return str(self.body.get("message", ""))

    @property
    def was_not_allowed(self) -> bool:
        """Whether the one who asks lacks the right, so that nobody else was asked."""
        return self.status == 401 or (self.status == 403 and " cannot " in self.message)


class Reader:
    """Calls under the identity of the person who runs the checks. All raise CantLook when there is no usable answer."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, path: str) -> Raw | None:
        """Read one object; None if it is not there."""
        answer = await self._send("GET", path, {})
        if answer.status == 404:
            return None
        return _good(answer, path)

    async def items(self, path: str, *, fields: str = "", if_served: bool = False) -> list[Raw]:
        """Read a whole list, or what a field selector leaves of it. ``if_served``: none of a kind that is not known."""
        found: list[Raw] = []
        token = ""
        while True:
            query = {"limit": _PAGE} | ({"continue": token} if token else {})
            query |= {"fieldSelector": fields} if fields else {}
            answer = await self._send("GET", path, query)
            if if_served and answer.status == 404:
                return []
            page = _good(answer, path)
            found += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue", "")
            if not token:
                return found

    async def tried(self, path: str, body: Raw) -> Answer:
        """Return what would become of a creation. Nothing is created: the server only tries (``dryRun=All``)."""
        return await self._send("POST", path, {"dryRun": "All"}, body)

    async def _send(self, method: str, path: str, query: Mapping[str, str], body: Raw | None = None) -> Answer:
        data = None if body is None else msgspec.json.encode(body)
        try:
            response = await self._transport.request(
                method, path, query=query, body=data, timeout_s=_TIMEOUT_S, most_bytes=WHOLE_BYTES
            )
        except ApiError as error:
            raise CantLook(str(error)) from error
        return Answer(response.status, _body(response))


def _body(response: Response) -> Raw:
    try:
        return _decode(response.body)
    except msgspec.DecodeError:
        return {"message": response.body[:200].decode(errors="replace")}


def _good(answer: Answer, path: str) -> Raw:
    if answer.status >= 400:
        raise CantLook(f"GET {path}: {answer.message or answer.status}")
    return answer.body
