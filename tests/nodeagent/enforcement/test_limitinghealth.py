from __future__ import annotations

from pathlib import Path

import anyio

from kube.client.resources import EVENTS
from nodeagent.enforcement.limit_files import ILL_AFTER_S
from tests.nodeagent.enforcement.test_limitfiles import Played
from tests.nodeagent.enforcement.test_limiting import BOOK
from tests.nodeagent.node import NODE, Scene, scene
from wire.crds.gpunode import CardHealth


async def health(it: Scene) -> tuple[list[CardHealth | None], int]:
    status = (await it.gpu_node()).status
    return [card.health for card in status.cards or ()], status.healthy


async def test_a_gpu_that_a_back_end_calls_ill_is_told_with_one_event_and_is_well_again(tmp_path: Path) -> None:
    back_end = Played()
    async with scene() as it:
        await it.reserve(**BOOK)
        await it.start(back_ends=[back_end], limits_cdi=tmp_path)
        await anyio.sleep(3.0)
        well = await health(it)
        back_end.gone = {"GPU-a": "its server has ended"}
        await anyio.sleep(ILL_AFTER_S - 5.0)
        assert await health(it) == well
        await anyio.sleep(10.0)
        (cards, healthy) = await health(it)
        (ill,) = [card for card in cards if card is not None]
        assert (ill.state, ill.reason) == ("ill", "MPSGone: its server has ended")
        assert healthy == well[1] - 1
        writes = len(it.writes())
        await anyio.sleep(600.0)
        assert len(it.writes()) == writes
        back_end.gone = {"GPU-a": "no daemon serves the node"}
        await anyio.sleep(5.0)
        (other,) = [card for card in (await health(it))[0] if card is not None]
        assert (other.reason, other.since) == ("MPSGone: no daemon serves the node", ill.since)
        back_end.gone = {}
        await anyio.sleep(5.0)
        assert await health(it) == well
        events = (await it.api.list(EVENTS)).items
        assert [(each.reason, each.note) for each in events] == [("MPSGone", "GPU-a: its server has ended")]
        assert events[0].regarding is not None
        assert (events[0].regarding.kind, events[0].regarding.name) == ("Node", NODE)


async def test_a_gpu_stays_ill_over_a_restart_of_the_agent_without_another_event(tmp_path: Path) -> None:
    back_end = Played(gone={"GPU-a": "its server has ended"})
    async with scene() as it:
        await it.reserve(**BOOK)
        first = await it.start(back_ends=[back_end], limits_cdi=tmp_path)
        await anyio.sleep(2 * ILL_AFTER_S)
        ill = await health(it)
        assert [card.reason for card in ill[0] if card is not None] == ["MPSGone: its server has ended"]
        first.cancel()
        await anyio.sleep(1.0)
        second = await it.start(back_ends=[back_end], limits_cdi=tmp_path)
        for _ in range(120):
            await anyio.sleep(0.5)
            assert await health(it) == ill
        second.cancel()
        await anyio.sleep(1.0)
        back_end.gone = {}
        await it.start(back_ends=[back_end], limits_cdi=tmp_path)
        await anyio.sleep(5.0)
        assert await health(it) == ([None, None], ill[1] + 1)
        assert len((await it.api.list(EVENTS)).items) == 1
