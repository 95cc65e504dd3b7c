"""Cards of unequal memory in one node: nobody gets less than it asked, and no card more than it has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from admission.settings import Choices
from admission.settings import Settings as AdmissionSettings
from gpu.dialects import settings_file
from gpu.dialects.settings import DialectSettings
from kube.client.resources import NODES, PODS
from simulator.nodes.shape import NodeShape
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import create, find, phases, pod, settle
from wire import names


def _memory(name: str, mib: int) -> dict[str, Any]:
    return pod(name, annotations={names.GPU_MEMORY: str(mib)})


async def test_a_charge_made_before_the_card_was_known_is_lowered_once_its_pod_is_bound_with_less() -> None:
    async with stage.stage("1x2x24GiB+2x80GiB") as world:
        await create(world, _memory("a", 60_000))
        await settle(20)
        uid = find(world, "a")["metadata"]["uid"]
        books = [p["metadata"]["annotations"][names.TENANTS] for p in world.pods if names.TENANTS in str(p["metadata"])]
        held = next(book for book in books if uid in book)
        assert '"nano":732421875' in held  # 60,000 of 81,920 MiB


@pytest.mark.thorough
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


@pytest.mark.parametrize(("reserve", "shared"), [("", 2), ("450", 1), ("3%", 1)])
async def test_what_the_driver_needs_of_a_card_is_no_tenants(reserve: str, shared: int) -> None:
    """A T4 says 15360 MiB, of which some 450 are its driver's: two tenants of 7680 MiB fill it on paper only."""
    async with stage.stage("1x1x15GiB") as world:
        if reserve:
            change = {"metadata": {"annotations": {names.GPU_MEMORY_RESERVE: reserve}}}
            await world.api.patch(NODES, "node-0", change)
        await create(world, _memory("t-a", 7680), _memory("t-b", 7680))
        await settle(30)
        assert [*phases(world).values()].count("Running") == shared
        (held,) = (p for p in world.pods if names.TENANTS in (p["metadata"].get("annotations") or {}))
        assert held["metadata"]["annotations"].get(names.GPU_MEMORY_RESERVE, "") == reserve
        await world.api.patch(NODES, "node-0", {"metadata": {"annotations": {names.GPU_MEMORY_RESERVE: None}}})
        await settle(30)
        # The card that is open counts as it was opened.
        assert [*phases(world).values()].count("Running") == shared


# Pods that name a card by index or UUID: it is opened for them, whichever one kubelet hands out first.


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


# Nodes with other replicas and units than the cluster's: through admission, scheduler, binder and kubelet.

CONFIG = "nvidia.com/device-plugin.config"
FOUR = NodeShape(name="four", cards_mib=(40_960,))
TWO = NodeShape(name="two", cards_mib=(40_960,), labels={CONFIG: "two"})
TEXT = """
replicas: {time_slices: 4}
nodes:
  - labels: {nvidia.com/device-plugin.config: two}
    replicas: {time_slices: 2}
    metagpu: {units: 40}
"""


def differing() -> WorldSettings:
    dialects = settings_file.of_cluster(TEXT)
    assert isinstance(dialects, DialectSettings)
    return WorldSettings(seed=1, admission=AdmissionSettings(choices=Choices(dialects=dialects)))


def asking(name: str, resource: str, count: int = 1, **spec: Any) -> dict[str, Any]:
    made = pod(name, **spec)
    made["spec"]["containers"][0]["resources"] = {"limits": {resource: str(count)}}
    return made


def charged(world: World, name: str) -> tuple[str, list[int]]:
    """The node of a pod, and what it was charged of each of its devices."""
    found = find(world, name)
    grant = json.loads(found["metadata"]["annotations"][names.GRANT])
    return found["spec"]["nodeName"], [device["nano"] for device in grant["devices"]]


async def test_a_replica_costs_what_it_is_on_the_node_that_is_chosen() -> None:
    async with stage.stage(FOUR, TWO, settings=differing()) as world:
        await create(world, *(asking(f"p{n}", "nvidia.com/gpu.shared") for n in range(7)))
        await settle(60)
        running = sorted(name for name, phase in phases(world).items() if phase == "Running")
        charges = Counter((node, *nanos) for node, nanos in (charged(world, name) for name in running))
        assert charges == {("four", 250_000_000): 4, ("two", 500_000_000): 2}
        (waiting,) = {*phases(world)} - {*running}
        assert "2 node(s) didn't have enough resources: GPUs" in stage.waits_because(world, waiting)


def unenforced(world: World, name: str) -> str:
    conditions = find(world, name)["status"]["conditions"]
    return next(str(each["message"]) for each in conditions if each["type"] == names.CONDITION_LIMITS_ENFORCED)


async def test_units_of_a_node_are_written_back_and_told_as_that_node_counts_them() -> None:
    async with stage.stage(FOUR, TWO, settings=differing()) as world:
        await create(world, asking("b", "cnvrg.io/metagpu", 30, nodeSelector={CONFIG: "two"}))
        await create(world, asking("a", "cnvrg.io/metagpu", 30))
        await settle(30)
        assert charged(world, "a") == ("four", [300_000_000])
        assert charged(world, "b") == ("two", [750_000_000])
        told = {name: find(world, name)["metadata"]["annotations"] for name in ("a", "b")}
        assert told["a"]["env.moorage.dev/c0.METAGPU_MAX_MEM"] == str(40_960 // 100 * 30)
        assert told["b"]["env.moorage.dev/c0.METAGPU_MAX_MEM"] == str(40_960 // 40 * 30)
        assert "a memory cap of 30%" in unenforced(world, "a")
        assert "a memory cap of 75%" in unenforced(world, "b")


async def test_whole_devices_of_some_nodes_are_shares_of_all_of_one_there() -> None:
    async with stage.stage(FOUR, TWO, settings=differing()) as world:
        await create(world, asking("p", "cnvrg.io/metagpu", 40, nodeSelector={CONFIG: "two"}))
        await settle(30)
        assert charged(world, "p") == ("two", [1_000_000_000])
