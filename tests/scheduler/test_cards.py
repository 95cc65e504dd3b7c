"""Cards of unequal memory in one node: nobody gets less than it asked, and no card more than it has."""

from __future__ import annotations

from typing import Any

from kube.client.resources import PODS
from tests.scheduler import stage
from tests.scheduler.stage import create, find, phases, pod, settle
from wire import names


def _memory(name: str, mib: int) -> dict[str, Any]:
    return pod(name, annotations={names.GPU_MEMORY: str(mib)})


async def test_memory_asks_find_the_larger_cards_and_leave_the_rest_of_them_to_others() -> None:
    async with stage.stage("1x2x24GiB+2x80GiB") as world:
        await create(world, _memory("a", 60_000), _memory("b", 60_000))
        await settle(20)
        assert set(phases(world).values()) == {"Running"}
        await create(world, *(_memory(f"s{i}", 20_000) for i in range(4)))
        await settle(20)
        assert set(phases(world).values()) == {"Running"}


async def test_a_charge_made_before_the_card_was_known_is_lowered_once_its_pod_is_bound_with_less() -> None:
    async with stage.stage("1x2x24GiB+2x80GiB") as world:
        await create(world, _memory("a", 60_000))
        await settle(20)
        uid = find(world, "a")["metadata"]["uid"]
        books = [p["metadata"]["annotations"][names.TENANTS] for p in world.pods if names.TENANTS in str(p["metadata"])]
        held = next(book for book in books if uid in book)
        assert '"nano":732421875' in held  # 60,000 of 81,920 MiB


async def test_what_is_larger_than_every_card_waits() -> None:
    async with stage.stage("1x2x24GiB+2x80GiB") as world:
        await create(world, _memory("a", 81_921))
        await settle(20)
        assert phases(world) == {"a": "Pending"}
        assert "GPU memory" in stage.waits_because(world, "a")


async def test_cards_that_are_known_to_be_too_small_are_not_tried_for_ever() -> None:
    async with stage.stage("1x1x24GiB+1x80GiB") as world:
        await create(world, _memory("large", 70_000))
        await settle(20)
        assert phases(world) == {"large": "Running"}
        await create(world, _memory("too", 60_000))
        await settle(3600)
        before = len(world.server.write_log)
        await settle(3600)
        assert len(world.server.write_log) - before <= 60
        await world.api.delete(PODS, "large", namespace=stage.TEAM)
        await settle(60)
        assert phases(world) == {"too": "Running"}
