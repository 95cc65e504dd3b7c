"""Reading a list: in pages, object by object, and whole or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import anyio.lowlevel
import msgspec

from kube.client import errors
from kube.client.decoding import Codec, ListMeta, Undecoded
from kube.client.transport import Response

T = TypeVar("T", bound=msgspec.Struct)
K = TypeVar("K")

PAGE_SIZE: Final = 500
#: So many objects are decoded before other tasks get a turn (about 5 ms).
_OBJECTS_PER_TURN: Final = 256
#: After so many expired continue tokens a list is asked for in one piece, which can't expire.
_PAGED_TRIES: Final = 2


class Listing(msgspec.Struct, Generic[K], frozen=True):
    """A complete list and the resourceVersion from which a watch may go on.

    Objects of built-in kinds come without apiVersion and kind in lists; that is how the server writes them.
    ``undecoded`` is only ever filled for callers that skip such objects.
    """

    items: list[K]
    resource_version: str
    undecoded: tuple[Undecoded, ...] = ()


@dataclass(slots=True)
class _Digest(Generic[T, K]):
    """What is kept of a list so far."""

    codec: Codec[T]
    keep: Callable[[T], K]
    kept: list[K] = field(default_factory=list)
    undecoded: list[Undecoded] = field(default_factory=list)

    async def take(self, response: Response) -> ListMeta:
        """Take one piece of the list, object by object."""
        page = self.codec.page(response.body)
        for number, raw in enumerate(page.items or (), 1):
            obj = self.codec.one(raw)
            if isinstance(obj, Undecoded):
                self.undecoded.append(obj)
            else:
                self.kept.append(self.keep(obj))
            if number % _OBJECTS_PER_TURN == 0:
                await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        return page.metadata


async def read_list(
    read: Callable[[Mapping[str, str]], Awaitable[Response]],
    query: Mapping[str, str],
    codec: Codec[T],
    keep: Callable[[T], K],
) -> Listing[K]:
    """Read all pages of a list; ``read`` asks for one, by its query."""
    for _ in range(_PAGED_TRIES):
        try:
            return await _whole(read, {**query, "limit": str(PAGE_SIZE)}, _Digest(codec, keep))
        except errors.Gone:
            # The continue token outlived etcd's history; what was read is of a lost version. Start anew.
            continue
    return await _whole(read, query, _Digest(codec, keep))


async def _whole(
    read: Callable[[Mapping[str, str]], Awaitable[Response]], query: Mapping[str, str], digest: _Digest[T, K]
) -> Listing[K]:
    meta = await digest.take(await read(query))
    while meta.token:
        meta = await digest.take(await read({**query, "continue": meta.token}))
    return Listing(digest.kept, meta.resource_version, tuple(digest.undecoded))
