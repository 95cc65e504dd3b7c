"""Bytes of the API server to objects: one, or a page of a list; and naming what does not decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from kube import errors
from kube.resources import Resource

T = TypeVar("T", bound=msgspec.Struct)


class Undecoded(msgspec.Struct, frozen=True):
    """An object that came but did not decode: which one, and why not. ``key`` is ``namespace/name`` or ``name``."""

    key: str
    error: str


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Objects of one piece of a list. ``token`` asks for the next piece, "" after the last."""

    items: Sequence[T]
    resource_version: str
    token: str
    undecoded: tuple[Undecoded, ...] = ()


class _ListMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Written(msgspec.Struct, Generic[T], frozen=True):
    """A list as the server writes it; an empty one may have null for its items."""

    items: list[T] | None = None
    metadata: _ListMeta = _ListMeta()


class _WrittenRaw(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = _ListMeta()


class _Name(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True, gc=False):
    metadata: _Name = _Name()


class Codec(Generic[T]):
    """Decodes one resource's objects and lists. Raises kube.errors.Undecodable."""

    def __init__(self, resource: Resource[T]) -> None:
        self._kind = resource.kind
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(resource.type)
        # mypy takes a subscript at run time for a type expression; resource.type is a value.
        self._list: msgspec.json.Decoder[_Written[T]] = msgspec.json.Decoder(_Written[resource.type])  # type: ignore[name-defined]

    def one(self, body: bytes) -> T:
        """Decode an object."""
        try:
            return self._object.decode(body)
        except msgspec.DecodeError as error:
            raise errors.Undecodable(f"{self._kind}: {error}") from error

    def page(self, body: bytes) -> Page[T]:
        """Decode a list. Objects that do not decode are named in it; only what is no list at all raises."""
        try:
            written = self._list.decode(body)
        except msgspec.DecodeError:
            # Rare: go through it again, object by object, to tell the bad from the good.
            return self._sift(body)
        return _page(written.items or (), written.metadata)

    def _sift(self, body: bytes) -> Page[T]:
        try:
            written = msgspec.json.decode(body, type=_WrittenRaw)
        except msgspec.DecodeError as error:
            raise errors.Undecodable(f"a list: {error}") from error
        items: list[T] = []
        undecoded: list[Undecoded] = []
        for raw in written.items or ():
            try:
                items.append(self._object.decode(raw))
            except msgspec.DecodeError as error:
                undecoded.append(Undecoded(object_key(raw), str(error)))
        return _page(items, written.metadata, tuple(undecoded))


def object_key(raw: bytes | msgspec.Raw) -> str:
    """``namespace/name`` of an object that would not decode, as far as it can be told."""
    try:
        meta = msgspec.json.decode(raw, type=_Named).metadata
    except msgspec.DecodeError:
        return "(unnamed)"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name or "(unnamed)"


def _page(items: Sequence[T], meta: _ListMeta, undecoded: tuple[Undecoded, ...] = ()) -> Page[T]:
    return Page(items, meta.resource_version, meta.continue_, undecoded)
