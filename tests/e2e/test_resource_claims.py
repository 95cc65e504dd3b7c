"""Pods with ResourceClaims, on the real control plane: its controller makes and clears claims, Moorage allocates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, pod, share
from tests.e2e.conftest import SetScene

pytestmark = pytest.mark.cluster

_GROUP, _VERSION = "resource.k8s.io", "v1"
_ATTACHED, _BROKEN = "example.com/attached", "example.com/broken"
_ANNOTATION = {"resource.kubernetes.io/extended-resource-claim": "true"}


class _Devices:
    """Two nodes with two devices each, of two models, of a driver and a class that are this scene's own."""

    def __init__(self, made: Scene) -> None:
        self.scene = made
        self.nodes = [f"{made.namespace}-{number}" for number in range(2)]
        self.driver = f"{made.namespace}.example.com"
        self.resource = f"{self.driver}/device"
        self._slices = [f"{node}-devices" for node in self.nodes]
        self._api = client.CustomObjectsApi(made.core.api_client)

    async def offer(self) -> None:
        """Publish the class and the slices."""
        selector = {"cel": {"expression": f"device.driver == '{self.driver}'"}}
        offered = {"selectors": [selector], "extendedResourceName": self.resource}
        await self._create("deviceclasses", {"metadata": {"name": self.driver}, "spec": offered})
        for node, model in zip(self.nodes, ("small", "large"), strict=True):
            devices = [{"name": f"d{n}", "attributes": {"model": {"string": model}}} for n in range(2)]
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": devices}
            await self._create("resourceslices", {"metadata": {"name": f"{node}-devices"}, "spec": spec})

    async def offer_slow(self) -> None:
        """Publish a device more on each node, that has to be attached before pods are bound."""
        conditions = {"bindingConditions": [_ATTACHED], "bindingFailureConditions": [_BROKEN], "bindsToNode": True}
        for node in self.nodes:
            device = {"name": "s0", "attributes": {"model": {"string": "slow"}}, **conditions}
            pool = {"name": f"{node}-slow", "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": [device]}
            name = f"{node}-slow"
            self._slices.append(name)
            await self._create("resourceslices", {"metadata": {"name": name}, "spec": spec})

    async def report(self, condition: str) -> None:
        """Report a condition of all devices of the only claim, as their driver does."""
        (claim,) = await self.claims()
        now = "2026-01-01T00:00:00Z"
        found = {"type": condition, "status": "True", "reason": "Done", "message": "", "lastTransitionTime": now}
        devices = [
            {"driver": self.driver, "pool": pool, "device": device, "conditions": [found]}
            for pool, device in await self.given()
        ]
        await self._api.patch_namespaced_custom_object_status(
            _GROUP,
            _VERSION,
            self.scene.namespace,
            "resourceclaims",
            claim["metadata"]["name"],
            [{"op": "add", "path": "/status/devices", "value": devices}],
        )

    async def create_for(self, owner: Pod) -> str:
        """Create a claim for extended resources of a pod, as another scheduler does; return its name."""
        meta = owner["metadata"]
        reference: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        name = f"{meta['name']}-extended-resources-other"
        body = {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "annotations": _ANNOTATION, "ownerReferences": [reference]},
            "spec": self._spec(1, ""),
        }
        await self._api.create_namespaced_custom_object(_GROUP, _VERSION, self.scene.namespace, "resourceclaims", body)
        return name

    async def take_away(self) -> None:
        """Delete what does not go with the namespace."""
        await self._api.delete_cluster_custom_object(_GROUP, _VERSION, "deviceclasses", self.driver)
        for name in self._slices:
            await self._api.delete_cluster_custom_object(_GROUP, _VERSION, "resourceslices", name)

    async def _create(self, plural: str, body: dict[str, Any]) -> None:
        kinds = {"deviceclasses": "DeviceClass", "resourceslices": "ResourceSlice"}
        written = {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": kinds[plural], **body}
        await self._api.create_cluster_custom_object(_GROUP, _VERSION, plural, written)

    def _spec(self, count: int, model: str) -> dict[str, Any]:
        exactly: dict[str, Any] = {"deviceClassName": self.driver, "count": count}
        if model:
            exactly["selectors"] = [{"cel": {"expression": f"device.attributes['{self.driver}'].model == '{model}'"}}]
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    async def create(self, name: str, count: int = 1, *, model: str = "", is_template: bool = False) -> None:
        """Create a claim, or a template of claims."""
        kind = "ResourceClaimTemplate" if is_template else "ResourceClaim"
        spec = self._spec(count, model)
        body = {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"spec": spec} if is_template else spec,
        }
        await self._api.create_namespaced_custom_object(
            _GROUP, _VERSION, self.scene.namespace, f"{kind.lower()}s", body
        )

    async def claims(self) -> list[dict[str, Any]]:
        """All claims of the scene."""
        listed = await self._api.list_namespaced_custom_object(_GROUP, _VERSION, self.scene.namespace, "resourceclaims")
        return list(listed["items"])

    async def given(self) -> set[tuple[str, str]]:
        """Pool and device of all that is allocated: nothing twice."""
        found = [
            (each["pool"], each["device"])
            for claim in await self.claims()
            for each in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        ]
        assert len(set(found)) == len(found)
        return set(found)


@pytest.fixture
async def devices(set_scene: SetScene) -> AsyncIterator[_Devices]:
    async with set_scene(["2x2x80GiB"]) as made:
        offered = _Devices(made)
        await offered.offer()
        yield offered
        await offered.take_away()


def _using(name: str, claim: str = "", *, template: str = "", fraction: str = "0.1") -> Pod:
    made = share(name, fraction)
    by = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    made["spec"]["resourceClaims"] = [{"name": "gpu", **by}]
    return made


async def _until_users(devices: _Devices, *names: str) -> None:
    """Wait until exactly these pods are in ``reservedFor`` of the scene's claims."""

    async def are_users() -> bool | None:
        claims = await devices.claims()
        found = sorted(each["name"] for claim in claims for each in claim.get("status", {}).get("reservedFor", ()))
        return found == sorted(names) or None

    await eventually(are_users, f"claims reserved for {names}", within_s=PATIENCE_S)


async def test_a_claim_by_template_is_allocated_and_goes_with_its_pod(devices: _Devices) -> None:
    await devices.create("one", model="large", is_template=True)
    await devices.scene.create(_using("p", template="one"))
    assert (await devices.scene.running(1))["p"]["spec"]["nodeName"] == devices.nodes[1]
    (claim,) = await devices.claims()
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert await devices.given() == {(devices.nodes[1], "d0")}
    await devices.scene.delete("p")

    async def are_gone() -> bool | None:
        return not await devices.claims() or None

    await eventually(are_gone, "claims gone with their pods", within_s=PATIENCE_S)


async def test_pods_wait_for_devices_and_run_when_one_has_ended(devices: _Devices) -> None:
    await devices.create("both", 2, model="small", is_template=True)
    await devices.scene.create(_using("p", template="both"))
    await devices.scene.running(1)
    await devices.scene.create(_using("q", template="both"))
    await devices.scene.says("q", "cannot allocate all claims")
    await devices.scene.delete("p")
    await devices.scene.gone(["p"])
    assert set(await devices.scene.running(1)) == {"q"}
    assert await devices.given() == {(devices.nodes[0], "d0"), (devices.nodes[0], "d1")}


async def test_two_pods_share_a_claim_on_its_node(devices: _Devices) -> None:
    await devices.create("shared", model="large")
    await devices.scene.create(_using("p", "shared"), _using("q", "shared"))
    running = await devices.scene.running(2)
    assert {pod["spec"]["nodeName"] for pod in running.values()} == {devices.nodes[1]}
    await _until_users(devices, "p", "q")


async def test_a_gang_gets_all_of_its_devices_or_none(devices: _Devices) -> None:
    await devices.create("one", is_template=True)
    await devices.create("held", 2, model="small")
    await devices.scene.create(_using("holder", "held"))
    await devices.scene.running(1)
    await devices.scene.create_gang("g", 3, *(_using(f"m{number}", template="one") for number in range(3)))
    await devices.scene.says("m0", "cannot allocate all claims")
    assert len(await devices.given()) == 2
    await devices.scene.delete("holder")
    await devices.scene.gone(["holder"])
    await devices.scene.running(3)
    assert len(await devices.given()) == 3
    await _until_users(devices, "m0", "m1", "m2")


def _asking(devices: _Devices, name: str, count: int = 1) -> Pod:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"limits": {devices.resource: str(count)}}
    return made


async def test_devices_stand_for_an_extended_resource_of_a_pod(devices: _Devices) -> None:
    await devices.scene.create(_asking(devices, "p", 2))
    running = (await devices.scene.running(1))["p"]
    (claim,) = await devices.claims()
    assert claim["metadata"]["annotations"] == _ANNOTATION
    status = running["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == claim["metadata"]["name"]
    assert [each["resourceName"] for each in status["requestMappings"]] == [devices.resource]
    node = running["spec"]["nodeName"]
    assert await devices.given() == {(node, "d0"), (node, "d1")}
    await devices.scene.create(_asking(devices, "q", 2))
    await devices.scene.running(2)
    await devices.scene.create(_asking(devices, "r"))
    await devices.scene.says("r", "cannot allocate all claims")
    await devices.scene.delete("p")
    await devices.scene.gone(["p"])
    assert set(await devices.scene.running(2)) == {"q", "r"}
    await _until_users(devices, "q", "r")


async def test_a_gang_gets_extended_resources_by_claims_for_all_members_or_none(devices: _Devices) -> None:
    await devices.scene.create(_asking(devices, "holder", 2))
    await devices.scene.running(1)
    await devices.scene.create_gang("g", 3, *(_asking(devices, f"m{number}") for number in range(3)))
    await devices.scene.says("m0", "cannot allocate all claims")
    assert len(await devices.claims()) == 1
    await devices.scene.delete("holder")
    await devices.scene.gone(["holder"])
    await devices.scene.running(3)
    await _until_users(devices, "m0", "m1", "m2")


async def test_a_claim_that_another_scheduler_made_for_a_pod_is_deleted_before_the_pod_gets_its_own(
    devices: _Devices,
) -> None:
    wanted = _asking(devices, "p")
    wanted["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    await devices.scene.create(wanted)
    other = await devices.create_for(await devices.scene.pod("p"))
    body = [{"op": "remove", "path": "/spec/schedulingGates"}]
    await devices.scene.core.patch_namespaced_pod("p", devices.scene.namespace, body)
    running = (await devices.scene.running(1))["p"]
    (claim,) = await devices.claims()
    assert claim["metadata"]["name"] == running["status"]["extendedResourceClaimStatus"]["resourceClaimName"] != other


async def test_a_pod_is_bound_when_its_device_is_attached(devices: _Devices) -> None:
    await devices.offer_slow()
    await devices.create("slow", model="slow", is_template=True)
    await devices.scene.create(_using("p", template="slow"))
    await _until_users(devices, "p")
    (claim,) = await devices.claims()
    assert claim["status"]["allocation"]["allocationTimestamp"]

    async def says_so() -> bool | None:
        waiting = await devices.scene.pod("p")
        assert not waiting["spec"].get("nodeName")
        conditions = waiting["status"].get("conditions") or ()
        said = [each["reason"] for each in conditions if each["type"] == "PodScheduled"]
        return said == ["BindingConditionsPending"] or None

    await eventually(says_so, "the pod says what it waits for", within_s=PATIENCE_S)
    await devices.report(_ATTACHED)
    (found,) = await devices.given()
    assert (await devices.scene.running(1))["p"]["spec"]["nodeName"] == found[0].removesuffix("-slow")


async def test_a_pod_whose_device_fails_gets_another_one(devices: _Devices) -> None:
    await devices.offer_slow()
    await devices.create("slow", model="slow", is_template=True)
    await devices.scene.create(_using("p", template="slow"))
    await _until_users(devices, "p")
    first = await devices.given()
    await devices.report(_BROKEN)

    async def is_another() -> bool | None:
        found = await devices.given()
        return (bool(found) and found != first) or None

    await eventually(is_another, "another device for the claim", within_s=PATIENCE_S)
    assert all("devices" not in each["status"] for each in await devices.claims())
    await devices.report(_ATTACHED)
    await devices.scene.running(1)
