"""Writes that nothing depends on: bounded in every way, and none is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest

from kube.client.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, ServerError
from scheduler.conditions.paced_writes import IN_FLIGHT, PER_S, PacedWrites
from wire.core import Status

EVERY_S = 5.0


class Objects:
    """Objects with the version that each should show, and the one that was written."""

    def __init__(self, write_s: float = 0.01, gather_s: float = 0.0) -> None:
        self.wanted: Counter[str] = Counter()
        self.shown: dict[str, int] = {}
        self.written: list[tuple[float, str]] = []
        self.looks: Counter[str] = Counter()
        self.fails: Callable[[str], ApiError | None] = lambda _: None
        self.side_by_side = self.most_side_by_side = 0
        self._write_s = write_s
        self.writes = PacedWrites[str](
            "a write",
            is_due=self.is_due,
            write=self.write,
            every_s=EVERY_S,
            gather_s=gather_s,
            namespace_of=lambda key: key.partition("/")[0],
        )

    @property
    def due(self) -> set[str]:
        return {key for key, version in self.wanted.items() if self.shown.get(key) != version}

    def is_due(self, key: str) -> bool:
        self.looks[key] += 1
        return self.shown.get(key) != self.wanted.get(key)

    async def write(self, key: str) -> None:
        version = self.wanted[key]
        self.written.append((anyio.current_time(), key))
        self.side_by_side += 1
        self.most_side_by_side = max(self.most_side_by_side, self.side_by_side)
        await anyio.sleep(self._write_s)
        self.side_by_side -= 1
        if (error := self.fails(key)) is not None:
            raise error
        self.shown[key] = version

    def change(self, *keys: str) -> None:
        self.wanted.update(keys)
        for key in keys:
            self.writes.look_at(key)

    def times(self, key: str = "a") -> list[float]:
        return [at for at, written in self.written if written == key]


@asynccontextmanager
async def running(objects: Objects) -> AsyncIterator[Objects]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(objects.writes.run)
        await anyio.sleep(0.001)
        yield objects
        tasks.cancel_scope.cancel()


def pauses(times: list[float]) -> list[float]:
    return [round(later - earlier, 1) for earlier, later in pairwise(times)]


async def test_an_object_that_changes_all_the_time_is_written_at_once_and_then_every_five_seconds() -> None:
    async with running(Objects()) as it:
        for _ in range(200):
            it.change("a")
            await anyio.sleep(0.1)
        assert pauses(it.times()) == [EVERY_S] * 3
        await anyio.sleep(60)
        assert pauses(it.times()) == [EVERY_S] * 4
        assert it.due == set()


async def test_an_object_that_need_not_be_written_costs_one_look() -> None:
    async with running(Objects()) as it:
        it.writes.look_at("a")
        await anyio.sleep(60)
        assert it.written == []
        assert it.looks["a"] == 1


async def test_a_change_during_a_write_is_written_when_its_time_has_come() -> None:
    async with running(Objects(write_s=1.0)) as it:
        it.change("a")
        await anyio.sleep(0.5)
        it.change("a")
        await anyio.sleep(10)
        assert pauses(it.times()) == [EVERY_S]
        assert it.due == set()


async def test_what_comes_within_the_time_to_gather_is_one_look_and_one_write() -> None:
    async with running(Objects(gather_s=2.0)) as it:
        began = anyio.current_time()
        for _ in range(19):
            it.change("a")
            await anyio.sleep(0.1)
        await anyio.sleep(0.2)
        assert [round(at - began, 1) for at in it.times()] == [2.0]
        assert it.due == set()
        looks = it.looks["a"]
        for _ in range(1000):
            it.writes.look_at("a")
            await anyio.sleep(0.01)
        assert it.looks["a"] - looks <= 5


async def test_many_objects_are_written_a_few_at_a_time_at_a_bounded_rate_and_all_of_them() -> None:
    async with running(Objects()) as it:
        began = anyio.current_time()
        it.change(*(f"q{number}" for number in range(1000)))
        await anyio.sleep(5)
        assert len(it.written) <= PER_S * 6 + 1
        await anyio.sleep(20)
        assert sorted(key for _, key in it.written) == sorted(f"q{number}" for number in range(1000))
        assert it.most_side_by_side <= IN_FLIGHT
        for second in range(25):
            within = [at for at, _ in it.written if second <= at - began < second + 1]
            assert len(within) <= 2 * PER_S


@pytest.mark.parametrize("error", [Forbidden(403, Status()), ServerError(500, Status())], ids=["forbidden", "failing"])
async def test_while_the_api_server_takes_none_nobody_is_written_and_tries_become_rare(error: ApiError) -> None:
    async with running(Objects()) as it:
        it.fails = lambda _: error
        it.change(*(f"q{number}" for number in range(100)))
        await anyio.sleep(3600)
        assert len(it.written) <= 20 * IN_FLIGHT
        it.fails = lambda _: None
        await anyio.sleep(400)
        assert it.due == set()


async def test_one_that_is_always_refused_holds_up_no_other() -> None:
    async with running(Objects()) as it:
        it.fails = lambda key: Invalid(422, Status()) if key == "bad" else None
        it.change("bad", "a", "b")
        await anyio.sleep(1)
        assert it.due == {"bad"}
        await anyio.sleep(3600)
        assert len(it.times("bad")) <= 20
        it.fails = lambda _: None
        await anyio.sleep(301)
        assert it.due == set()


async def test_a_write_that_met_another_one_is_repeated_in_five_seconds() -> None:
    async with running(Objects()) as it:
        left = [Conflict(409, Status())]
        it.fails = lambda _: left.pop() if left else None
        it.change("a")
        await anyio.sleep(30)
        assert pauses(it.times()) == [EVERY_S]


async def test_an_object_that_is_gone_is_not_written_again_until_somebody_says_so() -> None:
    async with running(Objects()) as it:
        it.fails = lambda _: NotFound(404, Status())
        it.change("a")
        await anyio.sleep(60)
        assert len(it.times()) == 1
        it.fails = lambda _: None
        it.change("a")
        await anyio.sleep(0.1)
        assert it.due == set()


async def test_what_changed_while_nobody_wrote_is_not_kept_for_later() -> None:
    objects = Objects()
    objects.change("a")
    async with running(objects) as it:
        await anyio.sleep(60)
        assert it.written == []
        it.change("a")
        await anyio.sleep(1)
        assert it.due == set()


async def test_a_write_that_was_cancelled_is_made_again_by_who_leads_next() -> None:
    objects = Objects(write_s=10.0)
    async with running(objects) as it:
        it.change("a")
        await anyio.sleep(1)
    async with running(objects) as it:
        it.change("a")
        await anyio.sleep(20)
        assert it.due == set()


async def test_a_namespace_with_many_objects_holds_up_no_other_one() -> None:
    async with running(Objects()) as objects:
        objects.change(*(f"flood/{number}" for number in range(20 * PER_S)), "honest/a", "honest/b")
        await anyio.sleep(1.0)
        first = [key for _, key in objects.written][: 2 * IN_FLIGHT]
        assert {"honest/a", "honest/b"} <= set(first)
        assert len(objects.written) < 3 * PER_S
