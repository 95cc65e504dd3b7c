"""Faults of watches, each seen by a client that is struck and by one that isn't."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tests.verification.hostile.faults.grounds import Heard, Stage, listen, stage
from verification.hostile.faults.requests import (
    CacheOld,
    WatchCut,
    WatchDelayed,
    WatchExpired,
    WatchHeld,
    WatchRepeated,
)


async def one_a_second(on: Stage, first: int, last: int) -> None:
    for second in range(first, last):
        await on.until(second)
        await on.request("user", name=f"c-{second}")


async def listeners(on: Stage) -> tuple[Heard, Heard]:
    """Watches of the binder, which is struck in these tests, and of the scheduler."""
    struck, spared = Heard(), Heard()
    for user, heard in (("binder", struck), ("scheduler", spared)):
        on.group.start_soon(partial(listen, on, heard, user=user))
    await on.until(0.5)
    return struck, spared


def lateness(heard: Heard) -> dict[str, float]:
    return {name: round(at_s - float(name[2:]), 3) for at_s, _, name in heard.lines}


async def test_repeated_lines_come_twice_and_then_no_more() -> None:
    async with stage() as on:
        struck, spared = await listeners(on)
        on.strike(WatchRepeated(at_s=2, for_s=2, user="binder", per_mille=1000, seed=1, lines=2))
        await one_a_second(on, 1, 6)
        assert struck.names == ["c-1", "c-2", "c-1", "c-2", "c-3", "c-2", "c-3", "c-4", "c-5"]
        assert set(Counter(spared.names).values()) == {1}


async def test_cut_watches_break_again_and_again_and_lose_what_is_on_its_way() -> None:
    async with stage() as on:
        struck, spared = await listeners(on)
        on.strike(WatchCut(at_s=1.5, for_s=4, user="binder", every_s=2.1, late_s=1.0))
        await one_a_second(on, 1, 9)
        assert struck.broke_at_s == [1.5, 3.6]
        assert spared.broke_at_s == []
        # c-3 was on its way when the connection broke; the resumed watch tells it again, a second late.
        assert lateness(struck) == {"c-1": 0, "c-2": 1, "c-3": 1.7, "c-4": 1, "c-5": 0.5, "c-6": 0, "c-7": 0, "c-8": 0}


async def test_after_a_forgotten_history_the_components_list_anew_and_go_on() -> None:
    async with stage() as on:
        on.strike(WatchExpired(at_s=0, for_s=20))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(60)
        assert await on.phase("p") == "Running"


async def test_delayed_lines_come_late_in_order_and_only_for_a_while() -> None:
    async with stage() as on:
        struck, spared = await listeners(on)
        on.strike(WatchDelayed(at_s=2, for_s=10, user="binder", most_s=3.0, seed=1))
        await one_a_second(on, 1, 16)
        assert struck.names == spared.names == [f"c-{second}" for second in range(1, 16)]
        late = lateness(struck)
        assert max(late[f"c-{second}"] for second in range(2, 12)) > 1.0
        assert all(late[f"c-{second}"] == 0 for second in (1, 12, 13, 14, 15))
        assert set(lateness(spared).values()) == {0.0}


@pytest.mark.parametrize(("plural", "is_struck"), [("configmaps", True), ("", True), ("pods", False)])
async def test_a_held_kind_is_heard_of_at_the_end_and_others_meanwhile(plural: str, is_struck: bool) -> None:
    async with stage() as on:
        struck, spared = await listeners(on)
        on.strike(WatchHeld(at_s=2, for_s=5, user="binder", plural=plural))
        await one_a_second(on, 1, 10)
        expected = {2: 5.0, 3: 4.0, 4: 3.0, 5: 2.0, 6: 1.0} if is_struck else {}
        assert lateness(struck) == {f"c-{second}": expected.get(second, 0.0) for second in range(1, 10)}
        assert set(lateness(spared).values()) == {0.0}


async def test_a_cache_stays_old_for_minutes_though_its_owner_works_on() -> None:
    async with stage() as on:
        on.strike(CacheOld(at_s=0, for_s=300, user="scheduler"))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(299)
        assert not (await on.read("p")).spec.node_name
        await on.until(320)
        assert await on.phase("p") == "Running"


async def test_who_missed_something_finds_its_history_gone() -> None:
    async with stage() as on:
        struck, spared = await listeners(on)
        on.strike(WatchExpired(at_s=1.5, for_s=2, user="binder"))
        await one_a_second(on, 1, 6)
        assert struck.lines == [(1, "ADDED", "c-1"), (3.6, "ERROR", "410")]
        assert len(spared.lines) == 5
