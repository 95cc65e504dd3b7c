"""Reading a list: in pages, object by object, and whole or not at all.

The next page is asked for before the objects of one are taken, so the server makes it meanwhile.
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
            # The continue token outlived etcd's history; what was read is of a lost version. Start again.
            continue
    return await _whole(read, query, _Digest(codec, keep))


async def _whole(
    read: Callable[[Mapping[str, str]], Awaitable[Response]], query: Mapping[str, str], digest: _Digest[T, K]
) -> Listing[K]:
    page = digest.codec.page((await read(query)).body)
    while page.metadata.token:
        following = _Ahead(read, {**query, "continue": page.metadata.token})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(following.run)
            await anyio.lowlevel.checkpoint()  # the request first
            await digest.take(page)
        page = digest.codec.page(following.response.body)
    await digest.take(page)
    return Listing(digest.kept, page.metadata.resource_version, tuple(digest.undecoded))


class _Ahead:
    """A page that is asked for while the one before it is taken."""

    def __init__(self, read: Callable[[Mapping[str, str]], Awaitable[Response]], query: Mapping[str, str]) -> None:
        self._read = read
        self._query = query
        self._answer: Response | errors.ApiError = errors.Unreachable("not asked yet")

    async def run(self) -> None:
        """Ask, and keep what is answered: raised here, an error would come out in an exception group."""
        try:
            self._answer = await self._read(self._query)
        except errors.ApiError as error:
            self._answer = error

    @property
    def response(self) -> Response:
        """The page. Raises the ApiError that came in its place."""
        if isinstance(self._answer, errors.ApiError):
            raise self._answer
        return self._answer
