"""Gangs that ask for places, from the objects that people write to nodes and conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kube.client.resources import KUEUE_TOPOLOGIES, NODES, POD_GROUPS, TOPOLOGIES
from simulator.apiserver.types import custom
from simulator.world import World
from tests.scheduler.conditions.queues import create_queue, gpus, use
from tests.scheduler.preemption.wholestage import cluster
from tests.scheduler.stage import TEAM, bound, create, create_gang, find, pod, settle, stage, waits_because

RACK = "example.com/rack"


async def _in_racks(world: World, *racks: str) -> dict[str, str]:
    """Label the nodes with these racks, in the order of their names; return the rack of each."""
    names = sorted(each.metadata.name for each in (await world.api.list(NODES)).items)
    for name, rack in zip(names, racks, strict=True):
        await world.api.patch(NODES, name, {"metadata": {"labels": {RACK: rack}}})
    return dict(zip(names, racks, strict=True))


async def _topology(world: World, name: str = "hall") -> None:
    levels = [{"nodeLabel": RACK, "alias": "rack"}]
    await world.api.create(TOPOLOGIES, {"metadata": {"name": name}, "spec": {"levels": levels}})


def _has_kueue(version: str) -> Callable[[World], None]:
    """Serve Kueue's Topologies, as where it is installed."""
    kind = custom("kueue.x-k8s.io", version, "topologies", "Topology", namespaced=False, status=False)
    return lambda world: world.server.define(kind)


async def _asks(world: World, group: str, **asked: str) -> None:
    constraint = {"topologyConstraint": {"topology": "hall", **asked}}
    await world.api.patch(POD_GROUPS, group, {"spec": constraint}, namespace=TEAM)


def _members(count: int, gpus: int = 1) -> list[dict[str, Any]]:
    return [pod(f"m{number}", gpus=gpus) for number in range(count)]


async def test_a_gang_waits_for_a_rack_and_says_which_has_most_room() -> None:
    async with stage("3x2x80GiB") as world:
        await _in_racks(world, "a", "b", "b")
        await _topology(world)
        await create(world, pod("other", gpus=1))
        await settle(5)
        await create(world, pod("another", gpus=2), pod("third", gpus=1))
        await settle(5)
        await create_gang(world, "g", 4)
        await _asks(world, "g", requiredTopologyLevel=RACK)
        await create(world, *({**each, **_of("g", each)} for each in _members(4)))
        await settle(20)
        assert bound(world) == {"other", "another", "third"}
        said = waits_because(world, "m0")
        assert said.startswith(
            f"topology hall, requirement {RACK} couldn't be satisfied for job <{TEAM}/g>: node-group "
        )
        assert "of 4 required pods" in said


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_gang_runs_in_a_rack_of_kueues_topology_a_minute_after_it_is_created_at_the_latest(
    version: str,
) -> None:
    async with stage("4x2x80GiB", before=_has_kueue(version)) as world:
        racks = await _in_racks(world, "a", "b", "b", "c")
        await create_gang(world, "g", 4)
        await _asks(world, "g", topology="*", requiredTopologyLevel=RACK)
        await create(world, *({**each, **_of("g", each)} for each in _members(4)))
        await settle(20)
        assert waits_because(world, "m0").startswith(f"topology with level {RACK} doesn't exist")
        kind = next(each for each in KUEUE_TOPOLOGIES if each.version == version)
        await world.api.create(kind, {"metadata": {"name": "theirs"}, "spec": {"levels": [{"nodeLabel": RACK}]}})
        await settle(60)
        assert {racks[find(world, f"m{number}")["spec"]["nodeName"]] for number in range(4)} == {"b"}


def _of(group: str, each: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a pod that is a member of a gang."""
    annotations = {**each["metadata"]["annotations"], "pod-group-name": group}
    return {"metadata": {**each["metadata"], "annotations": annotations}}


# A filter that only a test knows, in a whole simulated cluster: what pods say, and when they are bound.


# Room is made in a whole simulated cluster, when it may be.


async def test_a_minimum_runtime_is_counted_by_the_wall_clock_and_room_is_made_when_it_is_over() -> None:
    async with cluster("1x1x80GiB") as world:
        await create_queue(world, "a", resources=gpus(quota=1))
        await create_queue(world, "b", reclaimMinRuntime="1m")
        await use(world, "b", "theirs")
        await settle()
        assert bound(world) == {"theirs"}
        await use(world, "a", "mine")
        await anyio.sleep(40)
        assert bound(world) == {"theirs"}
        await anyio.sleep(40)
        assert bound(world) == {"mine"}
