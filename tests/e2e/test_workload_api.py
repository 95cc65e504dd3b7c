"""Gangs of Kubernetes' own Workload API (alpha in 1.36: a feature gate, and a group version to serve)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, scene, share
from tests.e2e.devices import Devices
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

_RACK = "example.com/rack"
_THEIRS = ("scheduling.k8s.io", "v1alpha2")


@pytest.fixture(scope="module")
def gated_plane() -> Iterator[ControlPlane]:
    gates = (
        *("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption", "TopologyAwareWorkloadScheduling"),
        "DRAWorkloadResourceClaims",
    )
    with ControlPlane(feature_gates=dict.fromkeys(gates, True)) as plane:
        yield plane


@pytest.fixture(scope="module")
def deployed(gated_plane: ControlPlane) -> Iterator[Deployment]:
    arguments = {"binder": ["--idle-s", "1"], "podgrouper": ["--no-leader-election"]}
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
        await make_group(on, "whole", schedulingPolicy=gang, disruptionMode="PodGroup")
        await make_group(on, "basic", schedulingPolicy={"basic": {}})
        await on.create(member("alone", "basic"), member("waits", "whole"))
        events = client.EventsV1Api(on.core.api_client)

        async def told() -> str | None:
            answer = await events.list_namespaced_event(on.namespace, _preload_content=False)
            found = json.loads(await answer.read())["items"]
            return next((each["note"] for each in found if each["reason"] == "PodGrouperWarning"), None)

        note = await eventually(told, "an event on the pod", within_s=PATIENCE_S)
        assert note.startswith("PodGroup whole asks for what is not carried out: spec.disruptionMode")
        pods = await on.running(1)
        assert [name for name, each in pods.items() if each["spec"].get("nodeName")] == ["alone"]


async def test_pods_of_a_pod_group_share_the_claims_that_were_made_for_it(
    gated_plane: ControlPlane, deployed: Deployment
) -> None:
    deployed.check()
    async with scene(gated_plane, "workload-api-claims", ["2x2x80GiB"]) as on:
        devices = Devices(on)
        await devices.offer()
        await devices.create("both", 2, model="large", is_template=True)
        entries = [{"name": "gpu", "resourceClaimTemplateName": "both"}]
        gang = {"gang": {"minCount": 2}}
        await make_group(on, "llm", schedulingPolicy=gang, resourceClaims=entries)
        pods = [member(f"w{number}", "llm") for number in range(2)]
        for each in pods:
            each["spec"]["resourceClaims"] = entries
        await on.create(*pods)
        running = await on.running(2)
        assert {each["spec"]["nodeName"] for each in running.values()} == {devices.nodes[1]}
        assert await devices.given() == {(devices.nodes[1], "d0"), (devices.nodes[1], "d1")}
        made = await _claim_of(devices, "llm")
        assert _users(made) == {("pods", name) for name in running}
        # The group stays, and its claim with it: the next pods get devices again.
        await on.delete("w0", "w1")
        await eventually(lambda: _is_free(devices, "llm"), "a claim without devices", within_s=PATIENCE_S)
        await on.create(
            *({**each, "metadata": {**each["metadata"], "name": f"w{at}"}} for at, each in enumerate(pods, 2))
        )
        await on.running(2)
        again = await _claim_of(devices, "llm")
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
        assert _users(again) == {("pods", "w2"), ("pods", "w3")}
        await devices.take_away()


def _renamed(made: Pod, name: str) -> Pod:
    return {**made, "metadata": {**made["metadata"], "name": name}}


async def _claim_of(devices: Devices, group: str) -> dict[str, Any]:
    """The claim that kube-controller-manager made for a PodGroup."""
    owned = [each for each in await devices.claims() if each["metadata"].get("ownerReferences")]
    (made,) = owned
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("PodGroup", group, True)
    return made


def _users(claim: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["resource"], each["name"]) for each in claim.get("status", {}).get("reservedFor", ())}


async def _is_free(devices: Devices, group: str) -> bool | None:
    status = (await _claim_of(devices, group)).get("status", {})
    return (not status.get("reservedFor") and not status.get("allocation")) or None
