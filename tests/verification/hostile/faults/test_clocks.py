"""A clock that jumps."""

from __future__ import annotations

import pytest

from tests.verification.hostile.faults.grounds import stage
from verification.hostile.faults.components import ClockJump


async def test_what_a_component_writes_bears_its_wrong_time() -> None:
    async with stage() as on:
        on.strike(ClockJump(at_s=0, for_s=10, component="scheduler", by_s=400 * 86_400.0))
        await on.until(1)
        await on.pod("p", gpus=7)
        await on.until(5)
        times = [condition.last_transition_time for condition in (await on.read("p")).status.conditions or ()]
        assert [str(time)[:4] for time in times] == ["2027"]


async def test_jumps_of_one_clock_add_up() -> None:
    async with stage() as on:
        for at_s in (1.0, 2.0):
            on.strike(ClockJump(at_s=at_s, for_s=3, component="binder", by_s=10.0))
        ahead_s = []
        for at_s in (0.5, 1.5, 2.5, 4.5, 5.5):
            await on.until(at_s)
            ahead_s.append(on.world.clocks["binder"].ahead_ns / 1e9)
        assert ahead_s == [0, 10, 20, 10, 0]


@pytest.mark.parametrize("by_s", [-3600.0, 0.25, 86_400.0])
async def test_the_clock_of_one_component_jumps_and_jumps_back(by_s: float) -> None:
    async with stage() as on:
        clocks = on.world.clocks

        def apart_s() -> float:
            return (clocks["binder"].now_ns() - clocks["scheduler"].now_ns()) / 1e9

        on.strike(ClockJump(at_s=1, for_s=5, component="binder", by_s=by_s))
        assert apart_s() == 0
        await on.until(1.1)
        assert apart_s() == by_s
        await on.until(6.1)
        assert apart_s() == 0
