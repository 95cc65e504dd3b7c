"""Kueue's Topology and annotations on a real control plane, without Kueue: a Job's pods run in one rack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import pod, scene
from tests.e2e.grouped import Workloads
from tests.e2e.workloads import owner
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import gangs, names

pytestmark = pytest.mark.cluster

RACK = "example.com/rack"
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
    """A control plane of these tests' own, which serves Kueue's kind from the start: it is looked for every minute."""
    with ControlPlane() as started:
        started.apply(json.dumps(_CRD))
        started.apply(json.dumps(_TOPOLOGY))
        yield started


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
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


async def test_the_pods_of_each_job_of_a_job_set_run_in_one_rack(plane: ControlPlane, moorage: Deployment) -> None:
    moorage.check()
    async with scene(plane, "slices", ["4x1x80GiB"]) as on:
        at = Workloads(on)
        await at.define("jobset.x-k8s.io", "JobSet", "jobsets", "v1alpha2")
        racks = {f"{on.namespace}-{number}": rack for number, rack in enumerate("aabb")}
        for name, rack in racks.items():
            await on.core.patch_node(name, {"metadata": {"labels": {RACK: rack}}})
        template = {"metadata": {"annotations": {names.KUEUE_SLICE_REQUIRED: RACK}}, "spec": pod("any")["spec"]}
        workers = {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": template}}}
        top = await at.make(owner("jobset.x-k8s.io/v1alpha2", "JobSet", "set", {"replicatedJobs": [workers]}))
        for index in range(2):
            labels = {gangs.JOBSET_REPLICATED_JOB: "workers", gangs.JOBSET_JOB_INDEX: str(index)}
            await at.job(f"set-workers-{index}", 3, above=top, pod_labels=labels)
        pods = await on.running(6)
        used: dict[str, set[str]] = {}
        for each in pods.values():
            index = each["metadata"]["labels"][gangs.JOBSET_JOB_INDEX]
            used.setdefault(index, set()).add(racks[each["spec"]["nodeName"]])
        # Together they need three of the nodes, so packed without slices one Job would be in both racks.
        assert sorted(map(sorted, used.values())) == [["a"], ["b"]]
        await at.end_jobs()
