"""Gangs of Kubernetes' own Workload API (alpha in 1.36: a feature gate, and a group version to serve)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, scene, share
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

_RACK = "example.com/rack"
_THEIRS = ("scheduling.k8s.io", "v1alpha2")


@pytest.fixture(scope="module")
def gated_plane() -> Iterator[ControlPlane]:
    gates = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "DRAWorkloadResourceClaims")
    with ControlPlane(feature_gates=dict.fromkeys(gates, True)) as plane:
        yield plane


@pytest.fixture(scope="module")
def deployed(gated_plane: ControlPlane) -> Iterator[Deployment]:
    arguments = {"binder": ["--idle-s", "1"], "workloads": ["--no-leader-election"]}
    with Deployment(gated_plane, Options(arguments=arguments, components=GROUPING)) as deployment:
        yield deployment
        deployment.check()


def member(name: str, group: str) -> Pod:
    made = share(name, "0.5")
    return {**made, "spec": {**made["spec"], "schedulingGroup": {"podGroupName": group}}}


async def make_group(on: Scene, name: str, **spec: Any) -> None:
    api_version = "/".join(_THEIRS)
    body = {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    await on.custom.create_namespaced_custom_object(*_THEIRS, on.namespace, "podgroups", body)


async def test_pods_of_a_pod_group_of_kubernetes_start_together(
    gated_plane: ControlPlane, deployed: Deployment
) -> None:
    deployed.check()
    async with scene(gated_plane, "workload-api", ["1x2x80GiB"]) as on:
        await on.create(member("w0", "llm"))
        await on.says("w0", "gang (spec.schedulingGroup) and names no PodGroup yet")
        await make_group(on, "llm", schedulingPolicy={"gang": {"minCount": 2}})
        await on.says("w0", "Waiting for 2 pods, currently 1 exist")
        await on.create(member("w1", "llm"))
        pods = await on.running(2)
        named = {each["metadata"]["annotations"][names.POD_GROUP_NAME] for each in pods.values()}
        assert named == {"pg-kubernetes-llm"}


async def test_pods_of_a_pod_group_with_a_topology_constraint_run_on_nodes_with_one_value_of_its_label(
    gated_plane: ControlPlane, deployed: Deployment
) -> None:
    deployed.check()
    async with scene(gated_plane, "workload-api-rack", ["3x2x80GiB"]) as on:
        racks = {f"{on.namespace}-{number}": rack for number, rack in enumerate("abb")}
        for name, rack in racks.items():
            await on.core.patch_node(name, {"metadata": {"labels": {_RACK: rack}}})
        constraints = {"topology": [{"key": _RACK}]}
        await make_group(on, "racked", schedulingPolicy={"gang": {"minCount": 6}}, schedulingConstraints=constraints)
        await on.create(*(member(f"r{number}", "racked") for number in range(6)))
        pods = await on.running(6)
        assert {racks[each["spec"]["nodeName"]] for each in pods.values()} == {"b"}


async def test_a_pod_group_that_asks_for_more_keeps_its_pods_waiting_and_says_why(
    gated_plane: ControlPlane, deployed: Deployment
) -> None:
    deployed.check()
    async with scene(gated_plane, "workload-api-more", ["1x2x80GiB"]) as on:
        gang = {"gang": {"minCount": 1}}
        claims = [{"name": "switch", "resourceClaimName": "switch"}]
        await make_group(on, "claiming", schedulingPolicy=gang, resourceClaims=claims)
        await make_group(on, "basic", schedulingPolicy={"basic": {}})
        await on.create(member("alone", "basic"), member("claims", "claiming"))
        events = client.EventsV1Api(on.core.api_client)

        async def told() -> str | None:
            answer = await events.list_namespaced_event(on.namespace, _preload_content=False)
            found = json.loads(await answer.read())["items"]
            return next((each["note"] for each in found if each["reason"] == "PodGrouperWarning"), None)

        note = await eventually(told, "an event on the pod", within_s=PATIENCE_S)
        assert note.startswith("PodGroup claiming asks for what is not carried out: spec.resourceClaims")
        pods = await on.running(1)
        assert [name for name, each in pods.items() if each["spec"].get("nodeName")] == ["alone"]
