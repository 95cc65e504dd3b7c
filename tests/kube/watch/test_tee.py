from __future__ import annotations

from collections.abc import Sequence

import pytest
from typing_extensions import override

from kube.watch.reflector import Sink, Tee
from wire.core import ObjectMeta, Pod


class Kept(Sink[Pod, str]):
    """Keeps names with a mark of its own."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self.there: set[str] = set()

    @override
    def keep(self, obj: Pod) -> str:
        return self._mark + obj.metadata.name

    @override
    async def replace(self, kept: Sequence[str]) -> None:
        self.there = set(kept)

    @override
    def upsert(self, obj: Pod) -> None:
        self.there.add(self.keep(obj))

    @override
    def delete(self, obj: Pod) -> None:
        self.there.discard(self.keep(obj))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pod(name: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name))


async def test_each_sink_is_given_what_it_would_be_given_alone() -> None:
    one, two = Kept("1"), Kept("2")
    both = Tee(one, two)
    await both.replace([both.keep(pod("a")), both.keep(pod("b"))])
    both.upsert(pod("c"))
    both.delete(pod("a"))
    assert (one.there, two.there) == ({"1b", "1c"}, {"2b", "2c"})
    await both.replace([])
    assert (one.there, two.there) == (set(), set())
