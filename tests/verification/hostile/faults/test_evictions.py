"""Faults of evictions: whom they strike, and that nothing is left of them."""

from __future__ import annotations

import pytest

from tests.verification.hostile.faults.grounds import NAMESPACE, Stage, stage
from verification.hostile.faults.ground import Timed
from verification.hostile.faults.objects import (
    KEEPS,
    EtcdRestored,
    EvictionsFail,
    EvictionsRefused,
    EvictionsSlow,
    VictimStays,
)

POD = f"/api/v1/namespaces/{NAMESPACE}/pods/p"


async def evicted(on: Stage, user: str = "scheduler") -> int:
    return (await on.request(user, path=f"{POD}/eviction", body={"metadata": {"name": "p"}}, timeout_s=60)).status


async def is_there(on: Stage) -> bool:
    return (await on.request("user", "GET", POD)).status == 200


async def running(on: Stage) -> None:
    await on.pod("p", gpus=1)
    await on.until(20)
    assert await on.phase("p") == "Running"


async def test_evictions_take_their_time_there_and_back() -> None:
    async with stage() as on:
        await running(on)
        on.strike(EvictionsSlow(at_s=30, for_s=30, there_s=9.0, back_s=9.0))
        await on.until(31)
        begun = on.now_s
        assert await evicted(on) == 201
        assert 1.0 < on.now_s - begun < 18.0


async def test_a_pod_that_is_evicted_stays_until_its_finalizer_is_taken_off() -> None:
    async with stage() as on:
        await running(on)
        on.strike(VictimStays(at_s=30, for_s=60))
        await on.until(31)
        assert (await on.read("p")).metadata.finalizers == [KEEPS]
        assert await evicted(on) == 201
        await on.until(80)
        assert (await on.read("p")).metadata.deletion_timestamp
        await on.until(92)
        assert not await is_there(on)


async def test_a_pod_that_nobody_evicts_has_its_finalizer_for_a_time() -> None:
    async with stage() as on:
        await running(on)
        on.strike(VictimStays(at_s=30, for_s=10))
        await on.until(41)
        assert not (await on.read("p")).metadata.finalizers
        assert await on.phase("p") == "Running"


async def test_a_finalizer_that_a_restored_etcd_brings_back_is_taken_off() -> None:
    async with stage() as on:
        await running(on)
        on.strike(VictimStays(at_s=30, for_s=10))
        on.strike(EtcdRestored(at_s=35, for_s=60, undone_s=10))
        await on.until(34)
        assert (await on.read("p")).metadata.finalizers == [KEEPS]
        await on.until(60)
        assert not (await on.read("p")).metadata.finalizers


@pytest.mark.parametrize(
    ("fault", "status", "goes"),
    [
        (EvictionsRefused(at_s=30, for_s=10), 429, False),
        (EvictionsRefused(at_s=30, for_s=10, user="binder"), 201, True),
        (EvictionsFail(at_s=30, for_s=10), 500, False),
        (EvictionsFail(at_s=30, for_s=10, done_per_mille=1000), 500, True),
    ],
)
async def test_evictions_are_refused_for_a_time_and_nothing_else_is(fault: Timed, status: int, goes: bool) -> None:
    async with stage() as on:
        await running(on)
        on.strike(fault)
        await on.until(31)
        assert await evicted(on) == status
        assert (await on.request("scheduler", name="anything")).status == 201
        await on.until(39)
        assert await is_there(on) is not goes
        await on.until(41)
        assert await evicted(on) == (404 if goes else 201)
