"""What is done about claims for extended resources: classes stand for some, claims are deleted, claims are forged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from kube.client.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS
from verification.hostile.acting import Act
from verification.hostile.claim_actions import DRIVER
from wire import names

if TYPE_CHECKING:
    from simulator.world import World

_NAMESPACE: Final = "team"


class CreateExtendedClass(Act, frozen=True, kw_only=True, tag="create-extended-class"):
    """Create a class that stands for an extended resource: of devices that are ``is_big``, or of all others."""

    name: str
    resource: str
    is_big: bool = False

    @override
    async def _do(self, world: World) -> None:
        expression = f'{"" if self.is_big else "!"}device.attributes["{DRIVER}"].big'
        spec = {"extendedResourceName": self.resource, "selectors": [{"cel": {"expression": expression}}]}
        await world.api.create(DEVICE_CLASSES, {"metadata": {"name": self.name}, "spec": spec})


class DeleteClass(Act, frozen=True, kw_only=True, tag="delete-class"):
    """Delete a DeviceClass."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(DEVICE_CLASSES, self.name)


class DeleteClaimsOf(Act, frozen=True, kw_only=True, tag="delete-claims-of"):
    """Somebody deletes the claims that were made for a pod."""

    pod: str

    @override
    async def _do(self, world: World) -> None:
        for claim in (await world.api.list(RESOURCE_CLAIMS, namespace=_NAMESPACE)).items:
            if any(each.kind == "Pod" and each.name == self.pod for each in claim.metadata.owner_references or ()):
                await world.api.delete(RESOURCE_CLAIMS, claim.metadata.name, namespace=_NAMESPACE)


class ForgeClaim(Act, frozen=True, kw_only=True, tag="forge-claim"):
    """Create a claim that looks as if the scheduler had made it for a pod."""

    name: str
    pod: str
    cls: str

    @override
    async def _do(self, world: World) -> None:
        pod = await world.api.get(PODS, self.pod, namespace=_NAMESPACE)
        owner: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "name": self.pod, "uid": pod.metadata.uid}
        annotations = {names.EXTENDED_RESOURCE_CLAIM: "true"}
        meta = {"name": self.name, "annotations": annotations, "ownerReferences": [{**owner, "controller": True}]}
        exactly = {"deviceClassName": self.cls, "allocationMode": "ExactCount", "count": 1}
        spec = {"devices": {"requests": [{"name": "container-0-request-0", "exactly": exactly}]}}
        await world.api.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": spec}, namespace=_NAMESPACE)


#: Everything that is done with claims for extended resources.
ExtendedAction = CreateExtendedClass | DeleteClass | DeleteClaimsOf | ForgeClaim
