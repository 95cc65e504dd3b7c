"""Reading a list: in pages, object by object, and whole or not at all.

The next page is asked for before the objects of one are taken, so the server makes it meanwhile.

A page has at most PAGE_SIZE objects and PAGE_BYTES. A page that is longer (a tenant's pods may have 1.5 MiB each) is
asked for again with fewer objects, down to one, and the pages after it grow again: nobody's objects are too large for
a list, and a list costs by its bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from kube.client import errors
from kube.client.decoding import Codec, Page, Undecoded
from kube.client.transport import Response

T = TypeVar("T", bound=msgspec.Struct)
K = TypeVar("K")

PAGE_SIZE: Final = 500
#: Longer than PAGE_SIZE usual pods, of 5 to 40 KiB, are; two pages are in memory at a time.
PAGE_BYTES: Final = 32 << 20
#: A page that is too long is asked for again with this part of its objects; the next one has twice as many.
_FEWER, _MORE = 8, 2
#: A list in one piece, which is the last resort.
WHOLE_BYTES: Final = 256 << 20
#: Objects that are decoded before other tasks get a turn (about 2 ms).
_OBJECTS_PER_TURN: Final = 64
#: After this many expired continue tokens a list is requested in one piece, which can't expire.
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

    async def take(self, page: Page) -> None:
        """Take one piece of the list, object by object."""
        for number, raw in enumerate(page.items or (), 1):
            obj = self.codec.one(raw)
            if isinstance(obj, Undecoded):
                self.undecoded.append(obj)
            else:
                self.kept.append(self.keep(obj))
            if number % _OBJECTS_PER_TURN == 0:
                await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()


#: Asks for one page, by its query, and reads no more than this many bytes of it.
Read = Callable[[Mapping[str, str], int], Awaitable[Response]]


async def read_list(read: Read, query: Mapping[str, str], codec: Codec[T], keep: Callable[[T], K]) -> Listing[K]:
    """Read all pages of a list. Raises errors.TooLarge where one object alone is longer than PAGE_BYTES."""
    for _ in range(_PAGED_TRIES):
        try:
            return await _whole(_Paged(read, query), _Digest(codec, keep))
        except errors.Gone:
            # The continue token outlived etcd's history; what was read is of a lost version. Start again.
            continue
    digest = _Digest(codec, keep)
    page = codec.page((await read(query, WHOLE_BYTES)).body)
    await digest.take(page)
    return _listing(digest, page)


async def _whole(paged: _Paged, digest: _Digest[T, K]) -> Listing[K]:
    page = digest.codec.page((await paged.read("")).body)
    while page.metadata.token:
        following = _Ahead(paged, page.metadata.token)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(following.run)
            await anyio.lowlevel.checkpoint()  # the request first
            await digest.take(page)
        page = digest.codec.page(following.response.body)
    await digest.take(page)
    return _listing(digest, page)


def _listing(digest: _Digest[T, K], last: Page) -> Listing[K]:
    return Listing(digest.kept, last.metadata.resource_version, tuple(digest.undecoded))


class _Paged:
    """Pages of one list, of as many objects as PAGE_BYTES have room for."""

    def __init__(self, read: Read, query: Mapping[str, str]) -> None:
        self._read = read
        self._query = query
        self._size = PAGE_SIZE

    async def read(self, token: str) -> Response:
        """Read the page that a token asks for; "": the first. Raises ApiError."""
        asked = {**self._query, **({"continue": token} if token else {})}
        while True:
            try:
                answer = await self._read({**asked, "limit": str(self._size)}, PAGE_BYTES)
            except errors.TooLarge:
                if self._size == 1:
                    raise
                self._size = max(1, self._size // _FEWER)
            else:
                self._size = min(PAGE_SIZE, self._size * _MORE)
                return answer


class _Ahead:
    """A page that is asked for while the one before it is taken."""

    def __init__(self, paged: _Paged, token: str) -> None:
        self._paged = paged
        self._token = token
        self._answer: Response | errors.ApiError = errors.Unreachable("not asked yet")

    async def run(self) -> None:
        """Ask, and keep what is answered: raised here, an error would come out in an exception group."""
        try:
            self._answer = await self._paged.read(self._token)
        except errors.ApiError as error:
            self._answer = error

    @property
    def response(self) -> Response:
        """The page. Raises the ApiError that came in its place."""
        if isinstance(self._answer, errors.ApiError):
            raise self._answer
        return self._answer
