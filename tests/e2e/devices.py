"""Devices of a driver of the tests, and ResourceClaims for them, on the real control plane."""

from __future__ import annotations

from typing import Any

from kubernetes_asyncio import client

from tests.e2e.cluster import Pod, Scene

_GROUP, _VERSION = "resource.k8s.io", "v1"
#: Conditions that slow devices report.
ATTACHED, BROKEN = "example.com/attached", "example.com/broken"
#: Annotation of claims that a scheduler makes for extended resources.
EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}


class Devices:
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
        conditions = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [BROKEN], "bindsToNode": True}
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
            "metadata": {"name": name, "annotations": EXTENDED, "ownerReferences": [reference]},
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
