"""CDI on a real control plane: the ClusterPolicy of NVIDIA's operator is detected, containers get what it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import PATIENCE_S, eventually, scene, share
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterpolicies.nvidia.com"},
    "spec": {
        "group": "nvidia.com",
        "names": {"kind": "ClusterPolicy", "plural": "clusterpolicies", "singular": "clusterpolicy"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
_POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy", "labels": {"app.kubernetes.io/version": "v25.10.1"}},
    "spec": {"cdi": {"enabled": True, "nriPluginEnabled": False}, "toolkit": {"enabled": True}},
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: what the operator says holds for the whole cluster, from the start."""
    with ControlPlane() as started:
        yield started


@pytest.fixture
async def moorage(plane: ControlPlane) -> Any:
    """Moorage in a cluster that has the operator, and no runtime class: NVIDIA's runtime is the nodes' default."""
    plane.rest().call("POST", _KINDS, _CRD)

    async def is_served() -> bool | None:
        return plane.rest().send("GET", _POLICIES, None)[0] == 200 or None

    await eventually(is_served, "ClusterPolicies to be served", within_s=PATIENCE_S)
    plane.rest().call("POST", _POLICIES, _POLICY)
    arguments = {"binder": ["--idle-s", "1"], "admission": ["--gpu-fraction-runtime-class-name", ""]}
    with Deployment(plane, Options(arguments=arguments)) as deployment:
        plane.rest().call("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/nvidia")
        yield deployment
        deployment.check()


async def test_where_the_operator_has_cdi_on_shares_are_told_by_cdi_names(
    plane: ControlPlane, moorage: Deployment
) -> None:
    async with scene(plane, "cdi", ["1x2x80GiB"]) as made:
        await made.create(share("first", "0.5"))
        await made.running(1)
        await made.create(share("further", "0.5"))
        pods = await made.running(2)
        for found in pods.values():
            annotations = found["metadata"]["annotations"]
            (device,) = json.loads(annotations[names.GRANT])["devices"]
            assert device["uuid"].startswith("GPU-")
            told = annotations[f"{names.VISIBLE_DEVICES_PREFIX}c0"]
            assert told == f"k8s.device-plugin.nvidia.com/gpu={device['uuid']}"
            assert made.seen(found) == {"main": (device["uuid"],)}
            assert "runtimeClassName" not in found["spec"]
    for component in (SCHEDULER, BINDER):
        assert "by CDI names: the ClusterPolicy cluster-policy" in moorage.log(component)
