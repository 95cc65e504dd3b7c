"""Shares that fill a card exactly, cards of different memory, and what does not fit by a hair."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import memory, share
from tests.e2e.conftest import SetScene

pytestmark = pytest.mark.cluster

EXACT = [
    pytest.param(["0.1", "0.2", "0.7"], "0.001", id="tenths"),
    pytest.param(["0.333", "0.333", "0.333", "0.001"], "0.000000001", id="thirds-and-the-rest"),
    pytest.param(["0.5", "0.499999999", "0.000000001"], "0.000000001", id="to-the-nano"),
]


@pytest.mark.parametrize(("fractions", "too_much"), EXACT)
async def test_fractions_fill_a_card_to_the_last_nano_and_not_beyond(
    set_scene: SetScene, fractions: list[str], too_much: str
) -> None:
    async with set_scene(["1x1x80GiB"]) as scene:
        await scene.create(*(share(f"p{i}", fraction) for i, fraction in enumerate(fractions)))
        pods = await scene.running(len(fractions))
        assert [len(sharers) for sharers in scene.sharers(pods).values()] == [len(fractions)]
        await scene.create(share("late", too_much))
        assert "GPUs" in await scene.says("late", "no nodes with enough resources were found")


async def test_of_24_pods_of_2000_mib_23_run_on_a_card_of_46068_and_one_says_why_it_waits(set_scene: SetScene) -> None:
    async with set_scene(["1x1x46068MiB"]) as scene:
        await scene.create(*(memory(f"p{i}", 2000) for i in range(24)))
        pods = await scene.running(23)
        waiting = [name for name, found in pods.items() if found["status"]["phase"] == "Pending"]
        assert len(waiting) == 1
        assert "GPU" in await scene.says(waiting[0], "no nodes with enough resources were found")
        assert [len(sharers) for sharers in scene.sharers(await scene.pods()).values()] == [23]
