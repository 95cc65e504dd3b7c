"""Shares of GPUs by ResourceClaims on the real control plane: what its API server takes, and its controller clears."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client
from kubernetes_asyncio.client.exceptions import ApiException

from tests.e2e.cluster import PATIENCE_S, Scene, eventually, memory, scene, share
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

_GROUP, _VERSION = "resource.k8s.io", "v1"
_DRIVER = "gpu.example.com"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: a class for GPUs concerns all nodes."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    with Deployment(plane, Options(arguments={"admission": ["--shares-by-claims"]})) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
async def made(plane: ControlPlane, moorage: Deployment) -> AsyncIterator[Scene]:
    """A node without a device plugin, whose driver publishes one GPU of 80 GiB for several claims at once."""
    moorage.check()
    async with scene(plane, f"parts-{next(_numbers)}", ["1x0"]) as made:
        api = client.CustomObjectsApi(made.core.api_client)
        spec: dict[str, Any] = {"extendedResourceName": names.GPU_RESOURCE}
        await _create(api, "deviceclasses", "DeviceClass", "gpu", spec)
        device = {
            "name": "d0",
            "allowMultipleAllocations": True,
            "attributes": {"uuid": {"string": "GPU-0"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        node = f"{made.namespace}-0"
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        offered = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": [device]}
        await _create(api, "resourceslices", "ResourceSlice", node, offered)
        yield made
        await api.delete_cluster_custom_object(_GROUP, _VERSION, "deviceclasses", "gpu")
        await api.delete_cluster_custom_object(_GROUP, _VERSION, "resourceslices", node)


async def _create(api: client.CustomObjectsApi, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}
    await api.create_cluster_custom_object(_GROUP, _VERSION, plural, body)


async def _claims(made: Scene) -> list[dict[str, Any]]:
    api = client.CustomObjectsApi(made.core.api_client)
    listed = await api.list_namespaced_custom_object(_GROUP, _VERSION, made.namespace, "resourceclaims")
    return list(listed["items"])


async def test_shares_run_by_claims_for_parts_of_a_device_and_the_claims_go_with_them(made: Scene) -> None:
    await made.create(share("p", "0.5"), memory("q", 40960))
    running = await made.running(2)
    claims = await _claims(made)
    results = [each for claim in claims for each in claim["status"]["allocation"]["devices"]["results"]]
    assert [(each["device"], each["consumedCapacity"]) for each in results] == [("d0", {"memory": "40Gi"})] * 2
    assert len({each["shareID"] for each in results}) == 2
    for found in running.values():
        (mapping,) = found["status"]["extendedResourceClaimStatus"]["requestMappings"]
        assert mapping["resourceName"] == names.GPU_SHARE_RESOURCE
        assert names.CLAIMED_SHARE in found["metadata"]["annotations"]
    await made.create(share("r", "0.5"))
    await made.says("r", "cannot allocate all claims")
    await made.delete("p")
    await made.gone(["p"])
    assert set(await made.running(2)) == {"q", "r"}

    async def are_two() -> bool | None:
        return len(await _claims(made)) == 2 or None

    await eventually(are_two, "the claim of p gone", within_s=PATIENCE_S)


async def test_a_user_cannot_write_what_a_claim_is_said_to_give(made: Scene) -> None:
    await made.create(share("p", "0.5"))
    await made.running(1)
    body = {"metadata": {"annotations": {names.CLAIMED_SHARE: "{}"}}}
    with pytest.raises(ApiException, match=names.CLAIMED_SHARE):
        await made.core.patch_namespaced_pod("p", made.namespace, body)
