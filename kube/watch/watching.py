"""What the lines of a watch mean: line in, event out, no I/O.

Decoding takes two steps, since what stands under ``object`` depends on ``type``: an ERROR holds a Status, a BOOKMARK
an almost empty object. The inner piece is decoded at once, so that the view on the line does not outlive it.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from kube.client.decoding import at_any_depth, object_key
from kube.client.resources import Resource
from wire.core import Status

T = TypeVar("T", bound=msgspec.Struct)


class Upserted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """ADDED or MODIFIED: the same to a cache, and after a resume the server may say either."""

    obj: T
    resource_version: str


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """DELETED, with the object's last state."""

    obj: T
    resource_version: str


class Bookmarked(msgspec.Struct, frozen=True, gc=False):
    """BOOKMARK: all up to this version has been sent. Also what an unknown kind of event amounts to."""

    resource_version: str


class Failed(msgspec.Struct, frozen=True):
    """ERROR: the watch is over, mostly because its version is too old (410)."""

    status: Status


class Garbled(msgspec.Struct, frozen=True):
    """An object that does not decode. ``resource_version`` is "" when not even that could be told."""

    key: str
    resource_version: str
    is_deletion: bool
    error: str


WatchEvent: TypeAlias = Upserted[T] | Deleted[T] | Bookmarked | Failed | Garbled


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct, frozen=True, gc=False):
    metadata: _Version = _Version()


_envelope: Final = msgspec.json.Decoder(_Envelope)
_status: Final = msgspec.json.Decoder(Status)
_versioned: Final = msgspec.json.Decoder(_Versioned)


class WatchDecoder(Generic[T]):
    """Decodes the lines of one resource's watches. Raises nothing: what is wrong with a line is an event, too."""

    def __init__(self, resource: Resource[T]) -> None:
        self._object: msgspec.json.Decoder[Any] = msgspec.json.Decoder(resource.type)

    def decode(self, line: bytes) -> WatchEvent[T]:
        """Return what one line says."""
        try:
            envelope = at_any_depth(_envelope, line)
        except msgspec.DecodeError as error:
            return Garbled("(unnamed)", "", is_deletion=False, error=str(error))
        try:
            return self._event(envelope)
        except msgspec.DecodeError as error:
            return _garbled(envelope, str(error))

    def _event(self, envelope: _Envelope) -> WatchEvent[T]:
        match envelope.type:
            case "ADDED" | "MODIFIED":
                obj = at_any_depth(self._object, envelope.object)
                return Upserted(obj, obj.metadata.resource_version)
            case "DELETED":
                obj = at_any_depth(self._object, envelope.object)
                return Deleted(obj, obj.metadata.resource_version)
            case "ERROR":
                return Failed(at_any_depth(_status, envelope.object))
            case _:
                return Bookmarked(at_any_depth(_versioned, envelope.object).metadata.resource_version)


def _garbled(envelope: _Envelope, error: str) -> Garbled | Failed:
    if envelope.type == "ERROR":
        return Failed(Status(message=error))
    try:
        version = at_any_depth(_versioned, envelope.object).metadata.resource_version
    except msgspec.DecodeError:
        version = ""
    return Garbled(object_key(envelope.object), version, is_deletion=envelope.type == "DELETED", error=error)
