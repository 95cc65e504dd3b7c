"""Faults of requests and watches, each seen by a client that is struck, and by one that isn't."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import anyio
import pytest

from kube.client.errors import Timeout, Unreachable
from tests.verification.hostile.faults.grounds import CONFIG_MAPS, Heard, Stage, listen, stage
from verification.hostile.faults.ground import Timed
from verification.hostile.faults.requests import (
    CacheOld,
    Conflicts,
    Expired,
    Forbidden,
    Resets,
    ServerErrors,
    Slow,
    Throttled,
    TimeOuts,
    Unauthorized,
    WatchCut,
    WatchDelayed,
    WatchExpired,
    WatchHeld,
    WatchRepeated,
)

ALL: dict[str, Any] = {"at_s": 1, "for_s": 10, "user": "binder"}


async def patched(on: Stage, user: str) -> int:
    return (await on.request(user, "PATCH", f"{CONFIG_MAPS}/there", body={"data": {"by": user}})).status


async def created(on: Stage, user: str) -> int:
    return (await on.request(user, name=f"{user}-{on.now_s:.0f}")).status


async def read(on: Stage, user: str) -> int:
    return (await on.request(user, "GET", f"{CONFIG_MAPS}/there")).status


@pytest.mark.parametrize(
    ("fault", "act", "status", "well"),
    [
        (Conflicts(**ALL), patched, 409, 200),
        (Conflicts(**ALL), created, 201, 201),
        (Throttled(**ALL), patched, 429, 200),
        (Throttled(**ALL), read, 429, 200),
        (Unauthorized(**ALL), patched, 401, 200),
        (Unauthorized(**ALL), read, 401, 200),
        (Forbidden(**ALL), patched, 403, 200),
        (Forbidden(**ALL), read, 403, 200),
        (ServerErrors(**ALL), patched, 500, 200),
        (ServerErrors(**ALL), read, 500, 200),
        (ServerErrors(**ALL, plural="pods"), read, 200, 200),
        (ServerErrors(**ALL, per_mille=0), read, 200, 200),
    ],
)
async def test_refusals_meet_whom_they_are_meant_for_and_end(fault: Timed, act: Any, status: int, well: int) -> None:
    async with stage() as on:
        await on.request("user", name="there")
        on.strike(fault)
        assert await act(on, "binder") == well
        await on.until(2)
        assert await act(on, "binder") == status
        assert await act(on, "scheduler") == well
        await on.until(12)
        assert await act(on, "binder") == well


async def test_a_throttled_client_is_told_when_to_come_back() -> None:
    async with stage() as on:
        on.strike(Throttled(at_s=0, for_s=10, user="binder", retry_after_s=7))
        await on.until(1)
        assert (await on.request("binder")).headers["retry-after"] == "7"


@pytest.mark.parametrize(("done_per_mille", "done"), [(0, False), (1000, True)])
async def test_a_server_error_tells_nothing_about_the_write(done_per_mille: int, done: bool) -> None:
    async with stage() as on:
        on.strike(ServerErrors(at_s=0, for_s=10, user="binder", done_per_mille=done_per_mille))
        await on.until(1)
        assert (await on.request("binder")).status == 500
        assert await on.exists() is done


@pytest.mark.parametrize(("outcome", "at_6_s", "at_9_s"), [("done", 1, 1), ("not-done", 0, 0), ("later", 0, 1)])
@pytest.mark.parametrize(("kind", "error", "after_s"), [(TimeOuts, Timeout, 2.0), (Resets, Unreachable, 0.0)])
async def test_what_became_of_a_write_is_not_told(
    outcome: str, at_6_s: int, at_9_s: int, kind: type[Timed], error: type[Exception], after_s: float
) -> None:
    async with stage() as on:
        on.strike(kind(at_s=0, for_s=20, user="binder", outcome=outcome, later_s=4.0))  # type: ignore[call-arg] # both
        await on.until(4)
        with pytest.raises(error) as raised:
            await on.request("binder", timeout_s=2)
        assert type(raised.value) is error
        assert on.now_s == 4 + after_s
        await on.until(7)
        assert await on.exists() is bool(at_6_s)
        await on.until(9)
        assert await on.exists() is bool(at_9_s)
        await on.until(21)
        assert (await on.request("binder", name="later")).status == 201


async def test_what_lands_late_lands_before_the_fault_is_over() -> None:
    async with stage() as on:
        on.strike(Resets(at_s=0, for_s=5, user="binder", outcome="later", later_s=100.0))
        await on.until(4)
        with pytest.raises(Unreachable):
            await on.request("binder")
        await on.until(5.1)
        assert await on.exists()


@pytest.mark.parametrize(("there_s", "back_s"), [(4.0, 0.0), (0.0, 4.0)])
async def test_a_slow_way_takes_its_time_there_or_back(there_s: float, back_s: float) -> None:
    async with stage() as on:
        on.strike(Slow(at_s=0, for_s=100, user="binder", there_s=there_s, back_s=back_s))
        await on.until(1)
        on.group.start_soon(on.request, "binder")
        await anyio.sleep(0.01)
        assert await on.exists() is (there_s == 0)
        took = []
        for number in range(10):
            began = on.now_s
            await on.request("binder", name=f"c-{number}")
            took.append(on.now_s - began)
        assert 2.0 < max(took) <= 4.0
        await on.until(101)
        began = on.now_s
        await on.request("binder", name="last")
        assert on.now_s == began


async def test_users_and_the_checker_are_spared_when_everybody_is_struck() -> None:
    async with stage() as on:
        on.strike(ServerErrors(at_s=0, for_s=10))
        await on.until(1)
        assert [await created(on, user) for user in ("user", "observer", "binder", "system:nodes")] == [
            *(201, 201),
            *(500, 500),
        ]


async def test_a_watch_is_refused_as_expired() -> None:
    async with stage() as on:
        on.strike(Expired(at_s=0, for_s=10, user="binder"))
        await on.until(1)
        heard = Heard()
        await listen(on, heard)
        assert heard.lines == [(1, "410", "")]
        assert (await on.request("binder")).status == 201


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
