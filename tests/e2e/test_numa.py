"""NodeResourceTopology objects on a real control plane: a pod goes only where its kubelet could align it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import Pod, pod, scene
from tests.scheduler.core.numa_objects import GPU, SINGLE, resource
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

pytestmark = pytest.mark.cluster

_KIND = ("topology.node.k8s.io", "v1alpha2")
_PLURAL = "noderesourcetopologies"
_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{_PLURAL}.{_KIND[0]}",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
    },
    "spec": {
        "group": _KIND[0],
        "names": {"kind": "NodeResourceTopology", "plural": _PLURAL, "singular": "noderesourcetopology"},
        "scope": "Cluster",
        "versions": [
            {
                "name": _KIND[1],
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this test's own, which serves the kind."""
    with ControlPlane() as started:
        started.apply(json.dumps(_CRD))
        yield started


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    with Deployment(plane, Options(arguments={"scheduler": ["--numa-alignment"]})) as deployment:
        yield deployment
        deployment.check()


def _zones(*left: int) -> list[dict[str, Any]]:
    """NUMA nodes with two GPUs each, of which so many are left."""
    return [{"name": f"node-{at}", "type": "Node", "resources": [resource(GPU, (2, n))]} for at, n in enumerate(left)]


def _asking(name: str, gpus: int) -> Pod:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(gpus)}}
    return made


async def test_a_pod_waits_until_one_numa_node_has_all_of_its_gpus(plane: ControlPlane, moorage: Deployment) -> None:
    moorage.check()
    async with scene(plane, "numa", ["1x4x80GiB"]) as on:
        api, name = client.CustomObjectsApi(on.core.api_client), f"{on.namespace}-0"
        body = {
            "apiVersion": "/".join(_KIND),
            "kind": "NodeResourceTopology",
            "metadata": {"name": name},
            "attributes": [{"name": "topologyManagerPolicy", "value": SINGLE}],
            "zones": _zones(1, 1),
        }
        await api.create_cluster_custom_object(*_KIND, _PLURAL, body)
        await on.create(_asking("too-large", 3), _asking("waits", 2))
        await on.says("too-large", "1 node(s) whose kubelet can't align the Pod on NUMA nodes")
        await on.says("waits", "1 node(s) have too few free devices and CPUs on the same NUMA nodes")
        change = [{"op": "replace", "path": "/zones", "value": _zones(1, 2)}]
        await api.patch_cluster_custom_object(*_KIND, _PLURAL, name, change)
        running = await on.running(1)
        assert [name for name, each in running.items() if each["spec"].get("nodeName")] == ["waits"]


async def test_a_third_guaranteed_pod_waits_though_the_report_is_of_before_the_first_two(
    plane: ControlPlane, moorage: Deployment
) -> None:
    """Nothing but CPUs: kubelet has taken two pods up, and the object still says that both NUMA nodes are free."""
    moorage.check()
    async with scene(plane, "numa-cpus", ["1x1x80GiB"]) as on:
        api, name = client.CustomObjectsApi(on.core.api_client), f"{on.namespace}-0"
        zones = [{"name": f"node-{at}", "type": "Node", "resources": [resource("cpu", (2, 2))]} for at in range(2)]
        body = {
            "apiVersion": "/".join(_KIND),
            "kind": "NodeResourceTopology",
            "metadata": {"name": name},
            "attributes": [{"name": "topologyManagerPolicy", "value": SINGLE}],
            "zones": zones,
        }
        await api.create_cluster_custom_object(*_KIND, _PLURAL, body)
        await on.create(_guaranteed("a"), _guaranteed("b"))
        await on.running(2)
        await on.create(_guaranteed("c"))
        await on.says("c", "1 node(s) have too few free devices and CPUs on the same NUMA nodes")
        await on.delete("a")
        await on.gone(["a"])
        running = await on.running(2)
        assert running["c"]["spec"]["nodeName"] == name


def _guaranteed(name: str) -> Pod:
    made = pod(name)
    amounts = {"cpu": "2", "memory": "64Mi"}
    made["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    return made
