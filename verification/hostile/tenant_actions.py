"""What a tenant does that means harm: each with no more than the rights of ClusterRole ``edit`` in its namespace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from typing_extensions import override

from kube.client import errors
from kube.client.resources import POD_DISRUPTION_BUDGETS, PODS, RESOURCE_CLAIMS
from verification.hostile.acting import LOOK_S, Act, seen
from wire import names

if TYPE_CHECKING:
    from simulator.world import World

#: The tenant's own namespace.
NAMESPACE: Final = "mallory"
#: An expression that the API server takes and that is long to evaluate; no device meets it.
_SLOW: Final = "cel.bind(a, '{text}', cel.bind(b, a.replace('x', a), b.replace('x', a))).size() < 0"

Json = dict[str, Any]


class CreateOwned(Act, frozen=True, kw_only=True, tag="create-owned"):
    """Create a pod whose owner is of this kind and name, right or wrong.

    ``uid_of``: a pod of another namespace of which the owner reference has the UID; "": it has one of nobody.
    """

    name: str
    kind: str
    owner: str
    api_version: str = "batch/v1"
    uid_of: str = ""
    group: str = ""

    @override
    async def _do(self, world: World) -> None:
        uid = next((pod["metadata"]["uid"] for pod in world.pods if pod["metadata"]["name"] == self.uid_of), "none")
        owner = {"apiVersion": self.api_version, "kind": self.kind, "name": self.owner, "uid": uid, "controller": True}
        annotations = {names.GPU_FRACTION: "0.1", **({names.POD_GROUP_NAME: self.group} if self.group else {})}
        metadata: Json = {"name": self.name, "ownerReferences": [owner], "annotations": annotations}
        await world.api.create(PODS, {"metadata": metadata, "spec": _spec()}, namespace=NAMESPACE)


class CreateLabelled(Act, frozen=True, kw_only=True, tag="create-labelled"):
    """Create pods with this number of labels each, of another scheduler or of ours."""

    name: str
    pods: int
    labels: int
    scheduler: str = names.SCHEDULER_NAME

    @override
    async def _do(self, world: World) -> None:
        for number in range(self.pods):
            labels = {f"mallory.example.com/{number}-{at}": "x" * 40 for at in range(self.labels)}
            metadata: Json = {"name": f"{self.name}-{number}", "labels": labels}
            await world.api.create(PODS, {"metadata": metadata, "spec": _spec(self.scheduler)}, namespace=NAMESPACE)


class Churn(Act, frozen=True, kw_only=True, tag="churn"):
    """Create one pod and delete it when it runs, or after ``wait_s``, again and again."""

    name: str
    times: int
    wait_s: float
    labels: dict[str, str]
    priority_class: str = ""

    @override
    async def _do(self, world: World) -> None:
        spec = _spec(gpus=1)
        if self.priority_class:
            spec["priorityClassName"] = self.priority_class
        body = {"metadata": {"name": self.name, "labels": self.labels}, "spec": spec}
        for _ in range(self.times):
            try:
                made = await world.api.create(PODS, body, namespace=NAMESPACE)
                await seen(partial(_runs, world, made.metadata.uid), self.wait_s)
                await world.api.delete(PODS, self.name, namespace=NAMESPACE, grace_s=0)
            except errors.ApiError:
                await anyio.sleep(LOOK_S)


class CreateEndless(Act, frozen=True, kw_only=True, tag="create-endless"):
    """Create shares with a long grace, each deleted by force as soon as it is bound: its containers go on."""

    name: str
    times: int
    labels: dict[str, str]
    grace_s: int = 200

    @override
    async def _do(self, world: World) -> None:
        annotations = {names.GPU_FRACTION: "0.9"}
        for number in range(self.times):
            name = f"{self.name}-{number}"
            metadata: Json = {"name": name, "labels": self.labels, "annotations": annotations}
            spec = {**_spec(), "terminationGracePeriodSeconds": self.grace_s}
            made = await world.api.create(PODS, {"metadata": metadata, "spec": spec}, namespace=NAMESPACE)
            await seen(partial(_is_bound, world, made.metadata.uid), 10.0)
            await world.api.delete(PODS, name, namespace=NAMESPACE, grace_s=0)


class ForbidEvictions(Act, frozen=True, kw_only=True, tag="forbid-evictions"):
    """Create a PodDisruptionBudget that lets none of its pods be evicted."""

    name: str

    @override
    async def _do(self, world: World) -> None:
        body = {"metadata": {"name": self.name}, "spec": {"maxUnavailable": 0, "selector": {}}}
        await world.api.create(POD_DISRUPTION_BUDGETS, body, namespace=NAMESPACE)


class CreateSlowClaims(Act, frozen=True, kw_only=True, tag="create-slow-claims"):
    """Create ResourceClaims whose selectors are long to evaluate and differ, and a pod for each."""

    name: str
    claims: int
    device_class: str
    length: int = 60

    @override
    async def _do(self, world: World) -> None:
        for number in range(self.claims):
            name = f"{self.name}-{number}"
            expression = _SLOW.format(text="x" * self.length + str(number))
            exactly = {"deviceClassName": self.device_class, "selectors": [{"cel": {"expression": expression}}]}
            spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
            await world.api.create(RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": spec}, namespace=NAMESPACE)
            pod = {**_spec(), "resourceClaims": [{"name": "c", "resourceClaimName": name}]}
            await world.api.create(PODS, {"metadata": {"name": name}, "spec": pod}, namespace=NAMESPACE)


#: Everything that the tenant does beside what all users do.
TenantAction = CreateOwned | CreateLabelled | Churn | CreateEndless | ForbidEvictions | CreateSlowClaims


def _spec(scheduler: str = names.SCHEDULER_NAME, *, gpus: int = 0) -> Json:
    container: Json = {"name": "main", "image": "work"}
    if gpus:
        container["resources"] = {"limits": {names.GPU_RESOURCE: str(gpus)}}
    return {"schedulerName": scheduler, "containers": [container]}


def _pod(world: World, uid: str) -> Json | None:
    return next((pod for pod in world.pods if pod["metadata"]["uid"] == uid), None)


def _is_bound(world: World, uid: str) -> bool:
    pod = _pod(world, uid)
    return pod is not None and bool(pod["spec"].get("nodeName"))


def _runs(world: World, uid: str) -> bool:
    pod = _pod(world, uid)
    return pod is not None and pod["status"].get("phase") == names.RUNNING
