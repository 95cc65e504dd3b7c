"""Places in flight have a share a namespace."""

from __future__ import annotations

from collections import Counter

import anyio

from podgrouper.work.unit import Places


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
