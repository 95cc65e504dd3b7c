"""What kubelet shows of slices, and when."""

from __future__ import annotations

import anyio
import pytest

from nodeagent.kubeletapi.client import Unanswered
from tests.simulator.mig.stage import NODE, stage


async def test_a_pod_is_shown_less_than_two_seconds_after_it_was_given_its_slice() -> None:
    async with stage("1g.10gb@0") as on:
        await anyio.sleep(5)
        manager = on.node.kubelet.intake.manager
        await on.pod("p", "1g.10gb", node=NODE)
        assert await on.until(lambda: bool(manager.pods))
        await anyio.sleep(1.9)
        ((given,),) = [each.devices for each in await on.node.side.list()]
        assert given.ids == tuple(each.uuid for each in on.node.machine.devices())


async def test_a_kubelet_that_starts_shows_no_pod_and_offers_nothing_for_a_while() -> None:
    async with stage("1g.10gb@0", hears_s=0.5) as on:
        await anyio.sleep(5)
        await on.pod("p", "1g.10gb", node=NODE)
        await anyio.sleep(5)
        before = on.node.side.life()
        on.node.side.restart(4.0)
        assert on.node.side.life() != before
        assert (await on.node.side.list(), await on.node.side.allocatable()) == ((), ())
        await anyio.sleep(4.1)
        assert len(await on.node.side.list()) == len(await on.node.side.allocatable()) == 1


async def test_without_power_it_does_not_answer() -> None:
    async with stage("1g.10gb@0") as on:
        on.node.kubelet.die()
        with pytest.raises(Unanswered):
            await on.node.side.list()
        assert on.node.side.life() is None
