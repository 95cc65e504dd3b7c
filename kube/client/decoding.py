"""Bytes of the API server to objects: one, or the pieces of a list; and naming what does not decode."""

from __future__ import annotations

import re
from typing import Final, Generic, TypeVar

import msgspec

from kube.client import errors
from kube.client.resources import Resource

#: Deeper than anything that is read: what Kubernetes' own objects mean ends within twenty levels or so.
MOST_LEVELS: Final = 100

#: A string, whose brackets mean nothing, or a bracket. Possessive: an unfinished string must not be tried in all ways.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def shallow(body: bytes | msgspec.Raw, most: int = MOST_LEVELS) -> bytes:
    """Return the same JSON with null for each array and object that is nested in ``most`` others. Never recurses."""
    text = bytes(body)
    kept: list[bytes] = []
    level = begin = 0
    for token in _TOKEN.finditer(text):
        match token[0]:
            case b"{" | b"[":
                if level == most:
                    kept.append(text[begin : token.start()])
                level += 1
            case b"}" | b"]":
                level -= 1
                if level == most:
                    kept.append(b"null")
                    begin = token.end()
            case _:
                pass
    kept.append(text[begin:])
    return b"".join(kept)


T = TypeVar("T", bound=msgspec.Struct)
D = TypeVar("D")


class Undecoded(msgspec.Struct, frozen=True):
    """An object that came but did not decode: which one, and why not. ``key`` is ``namespace/name`` or ``name``."""

    key: str
    error: str


class ListMeta(msgspec.Struct, frozen=True, gc=False):
    """Of which version a list is. ``token`` asks for its next piece, "" after the last."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """One piece of a list, its objects as they were written; an empty list may have null for them.

    They are decoded one by one: that takes no longer than all at once, never has more than one of them in memory beside
    what is kept of the others (whose strings would lie scattered among those of the whole page), and tells the bad from
    the good.
    """

    items: list[msgspec.Raw] | None = None
    metadata: ListMeta = ListMeta()


class _Name(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True, gc=False):
    metadata: _Name = _Name()


_named: Final = msgspec.json.Decoder(_Named)


def at_any_depth(decoder: msgspec.json.Decoder[D], body: bytes | msgspec.Raw) -> D:
    """Decode, however deep what nobody reads is nested. Raises msgspec.DecodeError.

    A user who may write any object at all may store in its ``metadata.managedFields`` what is nested thousands of
    levels deep (seen: 4,000 levels, kube-apiserver 1.36.3 stores and lists them). A decoder gives up on it although
    nobody reads that field, and with it on the whole page of the list. So what nests too deep is cut out before it is
    decoded once more.
    """
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(shallow(body))


class Codec(Generic[T]):
    """Decodes one resource's objects and lists."""

    def __init__(self, resource: Resource[T]) -> None:
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(resource.type)
        self._page = msgspec.json.Decoder(Page)

    def one(self, body: bytes | msgspec.Raw) -> T | Undecoded:
        """Decode an object."""
        try:
            return at_any_depth(self._object, body)
        except msgspec.DecodeError as error:
            return Undecoded(object_key(body), str(error))

    def page(self, body: bytes) -> Page:
        """Decode a piece of a list. Raises kube.client.errors.Undecodable if it is none."""
        try:
            return at_any_depth(self._page, body)
        except msgspec.DecodeError as error:
            raise errors.Undecodable(f"a list: {error}") from error


def object_key(raw: bytes | msgspec.Raw) -> str:
    """``namespace/name`` of an object that would not decode, as far as it can be told."""
    try:
        meta = at_any_depth(_named, raw).metadata
    except msgspec.DecodeError:
        return "(unnamed)"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name or "(unnamed)"
