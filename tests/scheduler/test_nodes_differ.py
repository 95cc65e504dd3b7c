"""Nodes with other replicas and units than the cluster's: through admission, scheduler, binder and kubelet."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from admission.settings import Choices
from admission.settings import Settings as AdmissionSettings
from gpu.dialects import settings_file
from gpu.dialects.settings import DialectSettings
from simulator.nodes.shape import NodeShape
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import create, find, phases, pod, settle
from wire import names

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


async def test_a_pod_for_nodes_that_serve_it_in_no_way_waits_and_says_so() -> None:
    async with stage.stage(FOUR, TWO, settings=differing()) as world:
        await create(world, asking("p", "cnvrg.io/metagpu", 100, nodeSelector={CONFIG: "two"}))
        await settle(30)
        assert phases(world) == {"p": "Pending"}
        assert "GPU units or replicas that do not match" in stage.waits_because(world, "p")
