from __future__ import annotations

from collections.abc import Mapping

import anyio.lowlevel
import msgspec
import pytest

from kube.client import errors
from kube.client.decoding import Codec
from kube.client.listing import PAGE_BYTES, PAGE_SIZE, WHOLE_BYTES, Listing, read_list
from kube.client.resources import NODES
from kube.client.transport import Response
from wire.core import Node, Status


class Pages:
    """A server with so many pages of two nodes each. ``failing``: what it answers for a token, once."""

    def __init__(self, pages: int, failing: Mapping[str, Exception] | None = None) -> None:
        self.log: list[str] = []
        self._pages = pages
        self._failing = dict(failing or {})

    async def read(self, query: Mapping[str, str], most_bytes: int) -> Response:
        assert most_bytes == PAGE_BYTES
        token = query.get("continue", "")
        self.log.append(f"ask {token or 0}")
        await anyio.lowlevel.checkpoint()
        if (error := self._failing.pop(token, None)) is not None:
            raise error
        number = int(token or "0")
        more = {"continue": str(number + 1)} if number + 1 < self._pages else {}
        items = [{"metadata": {"name": f"n{number}{letter}"}} for letter in "ab"]
        return Response(200, {}, msgspec.json.encode({"metadata": {"resourceVersion": "7", **more}, "items": items}))

    def keep(self, node: Node) -> str:
        self.log.append(f"keep {node.metadata.name}")
        return node.metadata.name

    async def list(self) -> Listing[str]:
        return await read_list(self.read, {}, Codec(NODES), self.keep)


async def test_all_pages_are_read_in_order() -> None:
    listed = await Pages(3).list()
    assert listed.items == ["n0a", "n0b", "n1a", "n1b", "n2a", "n2b"]
    assert listed.resource_version == "7"


async def test_the_server_makes_a_page_while_the_one_before_is_taken() -> None:
    server = Pages(3)
    await server.list()
    for number in (1, 2):
        assert server.log.index(f"ask {number}") < server.log.index(f"keep n{number - 1}a")
    assert len(server.log) == 3 + 6


@pytest.mark.parametrize("error", [errors.Unreachable("gone"), errors.Timeout("late"), errors.Undecodable("odd")])
async def test_an_error_of_a_later_page_comes_out_as_it_is(error: errors.ApiError) -> None:
    with pytest.raises(type(error)) as raised:
        await Pages(3, {"1": error}).list()
    assert raised.value is error


async def test_a_list_whose_token_expired_is_read_from_its_start() -> None:
    expired = errors.refused(410, Status(reason="Expired"))
    listed = await Pages(3, {"2": expired}).list()
    assert listed.items == ["n0a", "n0b", "n1a", "n1b", "n2a", "n2b"]


async def test_a_list_is_given_up_when_what_is_kept_fails() -> None:
    server = Pages(3)

    def fails(node: Node) -> str:
        raise ValueError(node.metadata.name)

    with pytest.raises(ExceptionGroup) as raised:
        await read_list(server.read, {}, Codec(NODES), fails)
    assert raised.group_contains(ValueError, match="n0a")


class Sizes:
    """A server of objects of these sizes; an answer above the limit of its reader is not read."""

    def __init__(self, *sizes: int) -> None:
        self.limits: list[int] = []
        self._sizes = sizes

    async def read(self, query: Mapping[str, str], most_bytes: int) -> Response:
        begin, limit = int(query.get("continue", "0")), int(query["limit"])
        self.limits.append(limit)
        end = begin + limit
        if sum(self._sizes[begin:end]) > most_bytes:
            raise errors.TooLarge("too large")
        more = {"continue": str(end)} if end < len(self._sizes) else {}
        items = [{"metadata": {"name": f"n{number}"}} for number in range(begin, min(end, len(self._sizes)))]
        return Response(200, {}, msgspec.json.encode({"metadata": {"resourceVersion": "7", **more}, "items": items}))

    async def list(self) -> list[str]:
        return (await read_list(self.read, {}, Codec(NODES), lambda node: node.metadata.name)).items


async def test_a_page_that_is_too_long_is_read_in_smaller_ones_which_grow_again() -> None:
    server = Sizes(*[1] * 500, *[PAGE_BYTES // 50] * 500, *[1] * 2000)
    assert await server.list() == [f"n{number}" for number in range(3000)]
    assert server.limits[:3] == [500, 500, 62]
    assert server.limits[-1] == PAGE_SIZE
    assert len(server.limits) < 60


async def test_the_largest_objects_are_read_one_by_one() -> None:
    server = Sizes(*[PAGE_BYTES] * 9)
    assert await server.list() == [f"n{number}" for number in range(9)]


async def test_an_object_that_is_too_large_alone_is_an_error_that_ends() -> None:
    server = Sizes(1, PAGE_BYTES + 1, 1)
    with pytest.raises(errors.TooLarge):
        await server.list()
    assert len(server.limits) < 8


async def test_a_list_in_one_piece_has_a_limit() -> None:
    asked: list[int] = []

    async def read(query: Mapping[str, str], most_bytes: int) -> Response:
        asked.append(most_bytes)
        if "limit" in query:
            raise errors.refused(410, Status(reason="Expired"))
        return Response(200, {}, b'{"items": []}')

    assert (await read_list(read, {}, Codec(NODES), lambda node: node.metadata.name)).items == []
    assert asked == [PAGE_BYTES, PAGE_BYTES, WHOLE_BYTES]
