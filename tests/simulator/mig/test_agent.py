"""One incarnation of an agent: it asks, refuses and reports as on a real node."""

from __future__ import annotations

import anyio

from kube.client.resources import GPU_NODES, NODES
from tests.simulator.mig.stage import NODE, stage
from wire import names


async def test_it_reports_its_gpus_with_slices_and_profiles() -> None:
    async with stage("1g.10gb@0", "3g.40gb@4") as on:
        await anyio.sleep(10)
        cards = (await on.world.api.get(GPU_NODES, NODE)).status.cards or []
        assert len(cards) == 1
        card = cards[0]
        assert [(each.profile, each.start) for each in card.layout or ()] == [("1g.10gb", 0), ("3g.40gb", 4)]
        assert "7g.80gb" in {each.name for each in card.profiles or ()}
        assert card.mig


async def test_on_a_node_that_is_not_offered_it_changes_nothing() -> None:
    async with stage("1g.10gb@0") as on:
        await on.world.api.patch(NODES, NODE, {"metadata": {"labels": {names.NODE_MIG: None}}})
        await anyio.sleep(10)
        await on.pod("large", "7g.80gb")
        await anyio.sleep(60)
        assert not on.node.is_offered
        assert (on.spots, await on.carving(), await on.phase("large")) == (["1g.10gb@0"], "", "Pending")
