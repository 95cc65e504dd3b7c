"""Faults of requests, each seen by a client that is struck, by one that isn't, and by the struck one afterwards."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kube.client.errors import Timeout, Unreachable
from tests.verification.hostile.faults.grounds import CONFIG_MAPS, Heard, Stage, listen, stage
from verification.hostile.faults.ground import Timed
from verification.hostile.faults.requests import (
    Conflicts,
    Expired,
    Forbidden,
    Resets,
    ServerErrors,
    Slow,
    Throttled,
    TimeOuts,
    Unauthorized,
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
