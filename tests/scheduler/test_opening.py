"""Pods that name a card by index or UUID: it is opened for them, whichever one kubelet hands out first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube.client.resources import NODES, PODS
from simulator.world import World
from tests.scheduler import stage
from tests.scheduler.stage import create, find, phases, pod, settle
from wire import names


def at_index(name: str, *indices: int, eighths: int = 4, **spec: Any) -> dict[str, Any]:
    """ClearML's eighths of cards by index."""
    made = pod(name, **spec)
    limits = {f"nvidia.com/gpu-{index}": str(eighths) for index in indices}
    made["spec"]["containers"][0]["resources"] = {"limits": limits}
    return made


def by_uuid(name: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """HAMi's part of a card, with UUIDs named."""
    made = pod(name, annotations=dict(annotations))
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}
    made["spec"]["containers"][0]["resources"] = {"limits": limits}
    return made


def cards(world: World, node: str) -> list[str]:
    """UUIDs of a node's cards by index."""
    return [device.uuid for device in world.nodes[node].devices]


def given(world: World, name: str) -> list[int]:
    """Indices of the cards that a pod was given."""
    found = find(world, name)
    told = found["metadata"]["annotations"].get(names.VISIBLE_DEVICES_PREFIX + "c0", "")
    node = cards(world, found["spec"]["nodeName"])
    return sorted(node.index(uuid) for uuid in told.split(","))


def reservations(world: World) -> int:
    return sum(p["metadata"]["namespace"] == names.RESERVATION_NAMESPACE for p in world.pods)


async def list_cards(world: World, node: str) -> None:
    """As an administrator does, from ``nvidia-smi -L``."""
    await world.api.patch(NODES, node, {"metadata": {"annotations": {names.NODE_UUIDS: ",".join(cards(world, node))}}})


async def test_a_card_by_index_is_opened_on_an_idle_node_and_the_others_are_given_back() -> None:
    async with stage.stage("1x8x40GiB") as world:
        await create(world, *(at_index(f"p{index}", index) for index in (0, 5, 7)))
        await settle(40)
        assert phases(world) == {"p0": "Running", "p5": "Running", "p7": "Running"}
        assert [given(world, f"p{index}") for index in (0, 5, 7)] == [[0], [5], [7]]
        await settle(60)
        assert reservations(world) == 3


async def test_two_cards_of_one_pod_are_both_found() -> None:
    async with stage.stage("1x4x40GiB") as world:
        await create(world, at_index("p", 1, 2, eighths=8))
        await settle(40)
        assert given(world, "p") == [1, 2]


async def test_pods_that_name_all_cards_at_once_get_them_all() -> None:
    """Each holds what it opened for seconds only, and what one doesn't want is found by another: nobody is stuck."""
    async with stage.stage("1x8x40GiB") as world:
        await create(world, *(at_index(f"p{index}", index, eighths=8) for index in range(8)))
        await settle(120)
        assert [given(world, f"p{index}") for index in range(8)] == [[index] for index in range(8)]


async def test_a_card_by_uuid_is_looked_for_only_on_the_node_that_has_it() -> None:
    async with stage.stage("3x4x40GiB") as world:
        for node in world.nodes.kubelets:
            await list_cards(world, node)
        last = max(world.nodes.kubelets)
        uuid = cards(world, last)[3]
        await create(world, by_uuid("p", {"nvidia.com/use-gpuuuid": uuid}))
        await settle(40)
        assert find(world, "p")["spec"]["nodeName"] == last
        assert given(world, "p") == [3]


async def test_a_uuid_that_nobody_knows_opens_nothing() -> None:
    async with stage.stage("2x4x40GiB") as world:
        await create(world, by_uuid("p", {"nvidia.com/use-gpuuuid": "GPU-00000000-nobody"}))
        await settle(60)
        assert phases(world) == {"p": "Pending"}
        assert reservations(world) == 0
        assert "no known GPU with an index or UUID" in stage.waits_because(world, "p")


async def test_a_card_that_is_excluded_is_passed_over() -> None:
    async with stage.stage("1x3x40GiB") as world:
        (node,) = world.nodes.kubelets
        excluded = cards(world, node)[:2]
        await create(world, by_uuid("p", {"nvidia.com/nouse-gpuuuid": ",".join(excluded)}))
        await settle(40)
        assert given(world, "p") == [2]


async def test_a_card_with_a_pod_of_whole_gpus_is_looked_for_once_and_then_when_that_pod_has_ended() -> None:
    async with stage.stage("1x2x40GiB") as world:
        await create(world, pod("whole", gpus=1))
        await settle(20)
        (kubelet,) = world.nodes.kubelets.values()
        (taken,) = kubelet.intake.manager.held_by_pod(find(world, "whole")["metadata"]["uid"])
        await create(world, at_index("p", taken.index))
        await settle(60)
        assert phases(world)["p"] == "Pending"
        assert "in use as a whole GPU" in stage.waits_because(world, "p")
        assert reservations(world) == 0
        made = len(stage.writes(world, "binder", "pods", verb="create"))
        await settle(3600)
        assert len(stage.writes(world, "binder", "pods", verb="create")) == made
        await world.api.delete(PODS, "whole", namespace=stage.TEAM)
        await settle(60)
        assert given(world, "p") == [taken.index]


async def test_a_pod_of_whole_gpus_takes_what_a_search_has_opened_at_once() -> None:
    async with stage.stage("1x4x40GiB") as world:
        await create(world, at_index("p", 3))
        await settle(15)
        assert given(world, "p") == [3]
        await create(world, pod("whole", gpus=3))
        await settle(8)
        assert phases(world)["whole"] == "Running"


async def test_what_is_opened_is_kept_while_the_search_goes_on_though_idle_devices_go_at_once() -> None:
    async with stage.stage("1x6x40GiB", settings=stage.quick_idle(0.1)) as world:
        (kubelet,) = world.nodes.kubelets.values()
        last = kubelet.intake.manager.order[-1].index
        await create(world, at_index("p", last))
        await settle(60)
        assert given(world, "p") == [last]
        assert reservations(world) == 1


async def test_nothing_is_left_of_a_search_whose_pod_goes_away() -> None:
    async with stage.stage("1x6x40GiB") as world:
        (kubelet,) = world.nodes.kubelets.values()
        await create(world, at_index("p", kubelet.intake.manager.order[-1].index))
        while reservations(world) < 2:
            await settle(0.1)
        await world.api.delete(PODS, "p", namespace=stage.TEAM)
        await settle(60)
        assert reservations(world) == 0
