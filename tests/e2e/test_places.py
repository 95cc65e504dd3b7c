"""Gangs that ask for places on the real control plane: Topology objects as its definition stores them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.cluster import Scene, pod
from tests.e2e.conftest import SetScene
from wire import names

pytestmark = pytest.mark.cluster

RACK, BLOCK = "example.com/rack", "example.com/block"


@asynccontextmanager
async def _hall(scene: Scene, *places: str) -> AsyncIterator[str]:
    """A Topology of blocks and racks, with the nodes of the scene in these ``block/rack``; its name."""
    for number, place in enumerate(places):
        block, rack = place.split("/")
        labels = {"metadata": {"labels": {BLOCK: block, RACK: rack}}}
        await scene.core.patch_node(f"{scene.namespace}-{number}", labels)
    levels = [{"nodeLabel": BLOCK}, {"nodeLabel": RACK, "alias": "rack"}]
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": scene.namespace},
        "spec": {"levels": levels},
    }
    await scene.custom.create_cluster_custom_object("kai.scheduler", "v1alpha1", "topologies", topology)
    try:
        yield scene.namespace
    finally:
        await scene.custom.delete_cluster_custom_object("kai.scheduler", "v1alpha1", "topologies", scene.namespace)


async def _group(scene: Scene, name: str, **spec: Any) -> None:
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"queue": "default", **spec},
    }
    await scene.custom.create_namespaced_custom_object(
        "scheduling.run.ai", "v2alpha2", scene.namespace, "podgroups", group
    )


def _member(name: str, subgroup: str = "") -> dict[str, Any]:
    annotations, labels = {names.POD_GROUP_NAME: "gang"}, {names.SUBGROUP_LABEL: subgroup} if subgroup else {}
    return pod(name, gpus=1, annotations=annotations, labels=labels)


async def test_a_gang_waits_for_a_rack_and_runs_in_one_once_it_has_room(set_scene: SetScene) -> None:
    async with set_scene(["3x2x80GiB"]) as scene, _hall(scene, "b/r1", "b/r2", "b/r2") as hall:
        await scene.create(*(pod(f"other-{number}", gpus=1) for number in range(4)))
        before = await scene.running(4)
        asked = {"topology": hall, "requiredTopologyLevel": "rack"}
        await _group(scene, "gang", minMember=4, topologyConstraint=asked)
        await scene.create(*(_member(f"m{number}") for number in range(4)))
        said = await scene.says("m0", "couldn't be satisfied")
        assert f"topology {hall}, requirement rack" in said
        assert "of 4 required pods" in said
        await scene.delete(*before)
        await scene.gone(list(before))
        pods = await scene.running(4)
        assert {pods[f"m{n}"]["spec"]["nodeName"] for n in range(4)} == {f"{scene.namespace}-{n}" for n in (1, 2)}


async def test_subgroups_run_each_in_a_rack_of_one_block(set_scene: SetScene) -> None:
    async with set_scene(["3x2x80GiB"]) as scene, _hall(scene, "b1/r1", "b2/r2", "b2/r3") as hall:
        in_rack = {"topology": hall, "requiredTopologyLevel": RACK}
        subgroups = [{"name": name, "minMember": 2, "topologyConstraint": in_rack} for name in ("one", "two")]
        in_block = {"topology": hall, "requiredTopologyLevel": BLOCK}
        await _group(scene, "gang", subGroups=subgroups, topologyConstraint=in_block)
        members = [_member(f"{name}-{number}", name) for name in ("one", "two") for number in range(2)]
        await scene.create(*members)
        pods = await scene.running(4)
        nodes = {name: pods[name]["spec"]["nodeName"] for name in pods}
        assert nodes["one-0"] == nodes["one-1"] != nodes["two-0"] == nodes["two-1"]
        assert {*nodes.values()} == {f"{scene.namespace}-{number}" for number in (1, 2)}
