"""DeviceTaintRules (beta and off by default in 1.36: a feature gate, and a group version to serve)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import Pod, scene, share
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

pytestmark = pytest.mark.cluster

_V1, _BETA = ("resource.k8s.io", "v1"), ("resource.k8s.io", "v1beta2")
_DRIVER = "tainting.example.com"


@pytest.fixture(scope="module")
def gated_plane() -> Iterator[ControlPlane]:
    with ControlPlane(feature_gates={"DRADeviceTaintRules": True}) as plane:
        yield plane


@pytest.fixture(scope="module")
def deployed(gated_plane: ControlPlane) -> Iterator[Deployment]:
    with Deployment(gated_plane, Options(arguments={"scheduler": ["--device-taint-rules"]})) as deployment:
        yield deployment
        deployment.check()


def _using(name: str, claim: str) -> Pod:
    made = share(name, "0.1")
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    return made


async def test_a_device_that_a_rule_taints_is_given_to_claims_that_tolerate_it_and_to_others_when_the_rule_is_gone(
    gated_plane: ControlPlane, deployed: Deployment
) -> None:
    deployed.check()
    async with scene(gated_plane, "tainting", ["1x2x80GiB"]) as on:
        api = client.CustomObjectsApi(on.core.api_client)

        async def create(version: tuple[str, str], kind: str, name: str, spec: dict[str, Any]) -> None:
            body = {"apiVersion": "/".join(version), "kind": kind, "metadata": {"name": name}, "spec": spec}
            plural = {"DeviceClass": "deviceclasses"}.get(kind, f"{kind.lower()}s")
            if kind == "ResourceClaim":
                await api.create_namespaced_custom_object(*version, on.namespace, plural, body)
            else:
                await api.create_cluster_custom_object(*version, plural, body)

        await create(_V1, "DeviceClass", _DRIVER, {})
        pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
        published = {"driver": _DRIVER, "nodeName": f"{on.namespace}-0", "pool": pool, "devices": [{"name": "d0"}]}
        await create(_V1, "ResourceSlice", "tainting", published)
        taint = {"key": "example.com/ill", "value": "xid", "effect": "NoSchedule"}
        rule = {"deviceSelector": {"driver": _DRIVER, "pool": "pool", "device": "d0"}, "taint": taint}
        await create(_BETA, "DeviceTaintRule", "ill", rule)
        asked = {"deviceClassName": _DRIVER}
        tolerating = {**asked, "tolerations": [{"key": "example.com/ill", "operator": "Exists"}]}
        for name, exactly in (("plain", asked), ("tolerant", tolerating)):
            await create(_V1, "ResourceClaim", name, {"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
        await on.create(_using("p", "plain"))
        await on.says("p", "cannot allocate all claims")
        await on.create(_using("q", "tolerant"))
        running = await on.running(1)
        assert [name for name, each in running.items() if each["spec"].get("nodeName")] == ["q"]
        await on.delete("q")
        await on.gone(["q"])
        await on.says("p", "cannot allocate all claims")
        await api.delete_cluster_custom_object(*_BETA, "devicetaintrules", "ill")
        assert set(await on.running(1)) == {"p"}
