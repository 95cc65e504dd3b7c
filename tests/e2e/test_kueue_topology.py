"""Kueue's Topology and annotations on a real control plane, without Kueue: a Job's pods run in one rack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, eventually, pod, scene
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

RACK = "example.com/rack"
_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TOPOLOGIES = "/apis/kueue.x-k8s.io/v1beta2/topologies"
_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "topologies.kueue.x-k8s.io"},
    "spec": {
        "group": "kueue.x-k8s.io",
        "names": {"kind": "Topology", "plural": "topologies", "singular": "topology"},
        "scope": "Cluster",
        "versions": [
            {
                "name": version,
                "served": True,
                "storage": version == "v1beta2",
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
            for version in ("v1beta1", "v1beta2")
        ],
    },
}
_TOPOLOGY = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Topology",
    "metadata": {"name": "default"},
    "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own, which serves Kueue's kind from the start: it is looked for every minute only."""
    with ControlPlane() as started:
        yield started


@pytest.fixture
async def moorage(plane: ControlPlane) -> Any:
    plane.rest().call("POST", _KINDS, _CRD)

    async def is_served() -> bool | None:
        return plane.rest().send("GET", _TOPOLOGIES, None)[0] == 200 or None

    await eventually(is_served, "Kueue's Topologies to be served", within_s=PATIENCE_S)
    plane.rest().call("POST", _TOPOLOGIES, _TOPOLOGY)
    with Deployment(plane, Options(arguments={"binder": ["--idle-s", "1"]}, components=GROUPING)) as deployment:
        yield deployment
        deployment.check()


async def test_the_pods_of_a_job_run_in_one_rack_of_kueues_topology(plane: ControlPlane, moorage: Deployment) -> None:
    moorage.check()
    async with scene(plane, "kueue", ["4x2x80GiB"]) as on:
        racks = {f"{on.namespace}-{number}": rack for number, rack in enumerate("abbc")}
        for name, rack in racks.items():
            await on.core.patch_node(name, {"metadata": {"labels": {RACK: rack}}})
        spec = {**pod("any", gpus=1)["spec"], "restartPolicy": "Never"}
        template = {"metadata": {"annotations": {names.KUEUE_REQUIRED: RACK}}, "spec": spec}
        job = {
            "metadata": {"name": "train", "annotations": {names.BATCH_MIN_MEMBER: "4"}},
            "spec": {"parallelism": 4, "completions": 4, "template": template},
        }
        jobs = client.BatchV1Api(on.core.api_client)
        await jobs.create_namespaced_job(on.namespace, job)
        pods = await on.running(4)
        assert {racks[each["spec"]["nodeName"]] for each in pods.values()} == {"b"}
        await jobs.delete_namespaced_job("train", on.namespace, propagation_policy="Background")
