"""L1 of pods that wait for MIG slices."""

from __future__ import annotations

import anyio
import pytest

from tests.simulator.mig.stage import Stage, stage
from verification.hostile import run_checks

VIRTUAL_TIME = True

pytestmark = pytest.mark.thorough


async def judged(on: Stage) -> list[str]:
    await run_checks.judge(on.world, on.nodes.of)
    return [violation.text for violation in on.world.checker.findings.found.values()]


async def test_what_is_served_in_time_is_no_violation() -> None:
    async with stage("1g.10gb@0") as on:
        await anyio.sleep(12)
        await on.pod("large", "7g.80gb")
        await anyio.sleep(0.5)
        assert await judged(on) == []
        await anyio.sleep(5)
        assert await on.phase("large") == "Running"


async def test_a_pod_beside_whose_slices_in_use_there_is_no_room_may_wait() -> None:
    async with stage("1g.10gb@3") as on:
        await on.pod("small", "1g.10gb")
        await anyio.sleep(10)
        since_s = anyio.current_time()
        await on.pod("large", "7g.80gb")
        assert await judged(on) == []
        assert anyio.current_time() == since_s


@pytest.mark.parametrize(("slices", "how"), [((), "can be cut for it"), (("1g.10gb@0",), "as many are free")])
async def test_a_pod_that_nobody_places_breaks_it(slices: tuple[str, ...], how: str) -> None:
    async with stage(*slices) as on:
        await anyio.sleep(15)
        on.world.scheduler.crash()
        await on.pod("small", "1g.10gb")
        await anyio.sleep(1)
        (text,) = await judged(on)
        assert text.startswith("pod team/small waits for 1 1g.10gb")
        assert how in text
