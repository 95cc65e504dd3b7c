"""Shares that fill a card exactly, cards of different memory, and what does not fit by a hair."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import Pod, memory, share
from tests.e2e.conftest import SetScene
from tests.whole import IS_WHOLE

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


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("fraction", "count"), [("0.001", 1000) if IS_WHOLE else ("0.025", 40)])
async def test_a_card_is_shared_by_as_many_pods_as_fit(set_scene: SetScene, fraction: str, count: int) -> None:
    async with set_scene(["1x1x80GiB"]) as scene:
        await scene.create(*(share(f"p{i}", fraction) for i in range(count)))
        pods = await scene.running(count, within_s=300)
        assert [len(sharers) for sharers in scene.sharers(pods).values()] == [count]
        await scene.create(share("late", fraction))
        await scene.says("late", "no nodes with enough resources were found")


async def test_memory_of_a_whole_card_fits_and_one_mib_more_does_not(set_scene: SetScene) -> None:
    async with set_scene(["1x2x46068MiB"]) as scene:
        await scene.create(memory("whole", 46068), memory("more", 46069))
        pods = await scene.running(1)
        assert pods["whole"]["status"]["phase"] == "Running"
        assert "GPU memory" in await scene.says("more", "no nodes with enough resources were found")


async def test_of_24_pods_of_2000_mib_23_run_on_a_card_of_46068_and_one_says_why_it_waits(set_scene: SetScene) -> None:
    async with set_scene(["1x1x46068MiB"]) as scene:
        await scene.create(*(memory(f"p{i}", 2000) for i in range(24)))
        pods = await scene.running(23)
        waiting = [name for name, found in pods.items() if found["status"]["phase"] == "Pending"]
        assert len(waiting) == 1
        assert "GPU" in await scene.says(waiting[0], "no nodes with enough resources were found")
        assert [len(sharers) for sharers in scene.sharers(await scene.pods()).values()] == [23]


@pytest.mark.parametrize(
    ("asked", "card"), [([8192, 8192, 8192], "24GiB"), ([5120, 10240], "15GiB")], ids=["thirds", "a third and two"]
)
async def test_memory_that_adds_up_to_a_card_runs_on_it_and_not_a_mib_more(
    set_scene: SetScene, asked: list[int], card: str
) -> None:
    async with set_scene([f"1x1x{card}"]) as scene:
        await scene.create(*(memory(f"p{i}", mem_mib) for i, mem_mib in enumerate(asked)))
        pods = await scene.running(len(asked))
        assert [len(sharers) for sharers in scene.sharers(pods).values()] == [len(asked)]
        await scene.create(memory("late", 1))
        await scene.says("late", "no nodes with enough resources were found")


async def test_memory_asks_find_the_larger_cards_of_an_uneven_node(set_scene: SetScene) -> None:
    async with set_scene(["1x2x24GiB+2x80GiB"]) as scene:
        await scene.create(memory("a", 60_000), memory("b", 60_000))
        pods = await scene.running(2)
        cards = {device.uuid: device.mem_mib for devices in scene.nodes.devices.values() for device in devices}
        by_device = scene.sharers(pods)
        assert sorted(map(tuple, by_device.values())) == [("a",), ("b",)]
        assert {cards[uuid] for uuid in by_device} == {80 * 1024}
        await scene.create(*_small())
        pods = await scene.running(6)
        _nothing_over(scene.sharers(pods), cards, {"a": 60_000, "b": 60_000, **{f"s{i}": 20_000 for i in range(4)}})


def _small() -> list[Pod]:
    return [memory(f"s{i}", 20_000) for i in range(4)]


def _nothing_over(by_device: dict[str, list[str]], cards: dict[str, int], asked: dict[str, int]) -> None:
    for uuid, pods in by_device.items():
        assert sum(asked[name] for name in pods) <= cards[uuid]
