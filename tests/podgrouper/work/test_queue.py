"""Work by keys: each key once, never twice at a time, later after a failure."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import anyio
import pytest

from kube.client.retry import BackoffRange
from podgrouper.core.projection import Key
from podgrouper.work.queue import Backlog
from podgrouper.work.unit import Places


def key(name: str, namespace: str = "") -> Key:
    """A key of a namespace of its own."""
    return namespace or f"of-{name}", name


A, B = key("a"), key("b")


class Bench:
    """Work that takes a second a key, and notes what is done when."""

    def __init__(self, *, at_once: int = 2, failing: Sequence[Key] = ()) -> None:
        self.backlog = Backlog(at_once=at_once, backoff=BackoffRange(first_s=1.0, most_s=60.0), rng=random.Random(1))
        self.failing = set(failing)
        self.begun: list[tuple[Key, float]] = []
        self.now: Counter[Key] = Counter()
        self.most = 0

    async def work(self, key: Key) -> bool:
        self.begun.append((key, anyio.current_time()))
        self.now[key] += 1
        assert self.now[key] == 1
        self.most = max(self.most, self.now.total())
        await anyio.sleep(1)
        self.now[key] -= 1
        return key not in self.failing

    async def run(self, *keys: Key, seconds: float, then: Sequence[tuple[float, Key]] = ()) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.backlog.run, keys, self.work)
            for wait_s, key in then:
                await anyio.sleep(wait_s)
                self.backlog.add(key)
            await anyio.sleep(seconds)
            tasks.cancel_scope.cancel()

    def times(self, key: Key) -> int:
        return sum(1 for each, _ in self.begun if each == key)


async def test_no_more_than_so_many_are_worked_on_side_by_side() -> None:
    bench = Bench(at_once=3)
    await bench.run(*(key(str(number)) for number in range(10)), seconds=30)
    assert (bench.most, len(bench.begun), len(bench.backlog)) == (3, 10, 0)


async def test_a_key_that_is_added_while_it_is_worked_on_is_worked_on_once_more() -> None:
    bench = Bench()
    await bench.run(A, seconds=30, then=[(0.2, A), (0.2, A), (0.2, A)])
    assert bench.times(A) == 2


async def test_a_key_that_waits_is_worked_on_once() -> None:
    bench = Bench(at_once=1)
    await bench.run(A, B, seconds=30, then=[(0.2, B), (0.2, B)])
    assert bench.times(B) == 1


async def test_a_key_that_fails_is_tried_ever_more_rarely_and_no_sooner_because_it_is_added() -> None:
    bench = Bench(failing=[A])
    await bench.run(A, seconds=3600, then=[(0.5, A)] * 20)
    starts = [at for key, at in bench.begun if key == A]
    gaps = [later - sooner for sooner, later in itertools.pairwise(starts)]
    assert all(gap >= 1.0 + 0.5 * min(60, 2**number) for number, gap in enumerate(gaps))
    assert max(gaps) <= 61.0
    assert bench.backlog.failures(A) == len(starts)


async def test_a_key_that_fails_is_tried_at_once_when_it_is_edited_and_then_no_more_often_than_before() -> None:
    bench = Bench(failing=[A])

    async def edit() -> None:
        for wait_s in (100.3, 0.4, 400.0):
            await anyio.sleep(wait_s)
            bench.backlog.edited(A)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(edit)
        await bench.run(A, seconds=3600)
    starts = [at for key, at in bench.begun if key == A]
    began = bench.begun[0][1]
    # The second edit comes while the first one is worked on.
    assert [at - began for at in starts if 100 < at - began < 102.5 or 500 < at - began < 501] == pytest.approx(
        [100.3, 101.3, 500.7], abs=0.01
    )
    assert len(starts) <= 130


async def test_failures_in_a_row_are_forgotten_with_a_success() -> None:
    bench = Bench(failing=[A])
    await bench.run(A, seconds=20)
    assert bench.backlog.failures(A) > 2
    bench.failing.clear()
    await bench.run(A, seconds=5)
    assert (bench.backlog.failures(A), len(bench.backlog)) == (0, 0)


async def test_a_key_that_is_due_again_is_worked_on_at_once_when_there_is_news_and_once_after_the_longest_wait() -> (
    None
):
    bench = Bench()

    async def work(key: Key) -> bool:
        if bench.times(A) < 3:
            # However often that is said.
            bench.backlog.again(key)
            bench.backlog.again(key)
        return await bench.work(key)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.backlog.run, [A], work)
        await anyio.sleep(10)
        bench.backlog.add(A)
        await anyio.sleep(600)
        tasks.cancel_scope.cancel()
    starts = [at for _, at in bench.begun]
    assert [round(at - starts[0]) for at in starts] == [0, 10, 60, 120]
    assert (bench.backlog.failures(A), len(bench.backlog)) == (0, 0)


async def test_a_key_that_is_due_again_while_it_is_worked_on_waits_for_that() -> None:
    bench = Bench()

    async def work(key: Key) -> bool:
        if not bench.begun:
            bench.backlog.again(key)
            await bench.work(key)
            await anyio.sleep(100)
            return True
        return await bench.work(key)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.backlog.run, [A], work)
        await anyio.sleep(70)
        bench.backlog.add(B)
        await anyio.sleep(300)
        tasks.cancel_scope.cancel()
    starts = [at for key, at in bench.begun if key == A]
    assert [round(at - starts[0]) for at in starts] == [0, 101]


async def test_a_namespace_that_fills_its_share_waits_and_no_other_does() -> None:
    bench = Bench(at_once=16)
    released = anyio.Event()

    async def work(one: Key) -> bool:
        if one[0] == "slow":
            bench.begun.append((one, anyio.current_time()))
            await released.wait()
            return True
        return await bench.work(one)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.backlog.run, [key(str(number), "slow") for number in range(10_000)], work)
        await anyio.sleep(5)
        assert len(bench.begun) == 4
        for number in range(36):
            bench.backlog.add(key(str(number), f"quick-{number % 3}"))
        await anyio.sleep(3.5)
        assert len(bench.begun) == 40
        assert len(bench.backlog) == 10_000
        released.set()
        await anyio.sleep(1)
        assert len(bench.backlog) == 0
        tasks.cancel_scope.cancel()


async def test_namespaces_take_turns() -> None:
    bench = Bench(at_once=1)
    keys = [key(str(number), "large") for number in range(50)] + [key("x", "small"), key("y", "small")]
    await bench.run(*keys, seconds=60)
    assert [one for one, _ in bench.begun[:4]] == [keys[0], key("x", "small"), keys[1], key("y", "small")]
    assert len(bench.begun) == 52


# Places in flight have a share a namespace.


async def test_a_namespace_has_a_quarter_of_the_places_and_those_who_wait_are_in_nobodys_way() -> None:
    places = Places(32)
    now: Counter[str] = Counter()
    done: Counter[str] = Counter()

    async def write(namespace: str, seconds: float) -> None:
        async with places.of(namespace):
            now[namespace] += 1
            assert now[namespace] <= 8
            assert now.total() <= 32
            await anyio.sleep(seconds)
            now[namespace] -= 1
            done[namespace] += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(write, "slow", 3600.0)
        await anyio.sleep(1)
        assert now == {"slow": 8}
        for number in range(80):
            tasks.start_soon(write, f"quick-{number % 3}", 1.0)
        await anyio.sleep(4.5)
        assert sum(done.values()) == 80
        tasks.cancel_scope.cancel()


async def test_places_of_namespaces_that_wait_for_none_are_not_kept() -> None:
    places = Places(4)
    for number in range(100):
        async with places.of(f"ns-{number}"):
            assert len(places) == 1
    assert len(places) == 0
