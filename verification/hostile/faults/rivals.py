"""Another scheduler, which allocates devices of the same pools: no lock and no order is between the two."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import anyio
from typing_extensions import override

from kube.client import errors
from kube.client.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from verification.hostile.device_actions import ANY_CLASS, Want, asked
from verification.hostile.faults.ground import Ground, Timed
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference
from wire.resource import ResourceClaim, ResourceSlice

NAMESPACE: Final = "rivals"
SCHEDULER: Final = "rival-scheduler"
#: node, driver, pool, device
_Place = tuple[str, str, str, str]


class RivalAllocates(Timed, frozen=True, kw_only=True, tag="rival-allocates"):
    """Another scheduler gives devices to ``count`` pods of its own, one after the other, which go at the end.

    What it knows of claims and slices is up to ``late_s`` old when it writes. As kube-scheduler it binds its pods
    without a look at what others wrote meanwhile.
    """

    count: int
    late_s: float
    seed: int

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)
        made: list[str] = []
        with anyio.move_on_after(self.for_s):
            for number in range(self.count):
                name = f"rival-{self.seed}-{round(self.at_s * 1000)}-{number}"
                made.append(name)
                with anyio.CancelScope(shield=True):
                    await self._run(ground, dice, name)
                await anyio.sleep(self.for_s / (2 * self.count) * dice.random())
            await anyio.sleep(ground.left_s(self.end_s))
        for name in made:
            for kind in (PODS, RESOURCE_CLAIMS):
                await ground.insist(partial(ground.api.delete, kind, name, namespace=NAMESPACE))

    async def _run(self, ground: Ground, dice: random.Random, name: str) -> None:
        """Create a pod with a claim, allocate it, and bind the pod."""
        api, at = ground.api, {"namespace": NAMESPACE}
        try:
            claim = await api.create(RESOURCE_CLAIMS, _claim(name), **at)
            pod = await api.create(PODS, _pod(name), **at)
            held = {device for each in (await api.list(RESOURCE_CLAIMS)).items for device in _held(each)}
            free = [place for place in _places((await api.list(RESOURCE_SLICES)).items) if place[1:] not in held]
            await anyio.sleep(dice.uniform(0.0, self.late_s))
            if not free:
                return
            place = free[0] if dice.random() < 0.5 else dice.choice(free)  # the first is everybody's first choice
            finalizers = {"metadata": {"finalizers": [names.CLAIM_FINALIZER]}}
            claim = await api.patch(RESOURCE_CLAIMS, name, finalizers, **at)
            version = claim.metadata.resource_version
            status = {"status": _allocated(place, name, pod.metadata.uid)}
            await api.patch(RESOURCE_CLAIMS, name, status, subresource="status", resource_version=version, **at)
            meta = ObjectMeta(name=name, namespace=NAMESPACE, uid=pod.metadata.uid)
            target = ObjectReference(api_version="v1", kind="Node", name=place[0])
            await api.bind(NAMESPACE, name, Binding(metadata=meta, target=target))
        except errors.ApiError:
            return


def _claim(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": asked((Want(cls=ANY_CLASS),))}


def _pod(name: str) -> dict[str, Any]:
    spec = {
        "schedulerName": SCHEDULER,
        "containers": [{"name": "main", "image": "work"}],
        "resourceClaims": [{"name": "c", "resourceClaimName": name}],
    }
    return {"metadata": {"name": name}, "spec": spec}


def _allocated(place: _Place, name: str, uid: str) -> dict[str, Any]:
    node, driver, pool, device = place
    result = {"request": "r0", "driver": driver, "pool": pool, "device": device}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    return {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": name, "uid": uid}]}


def _held(claim: ResourceClaim) -> Iterator[tuple[str, str, str]]:
    allocation = claim.status.allocation
    for each in (allocation.devices.results if allocation is not None else None) or ():
        yield each.driver, each.pool, each.device


def _places(listed: Sequence[ResourceSlice]) -> Iterator[_Place]:
    """Whole devices without taints of the newest generations."""
    newest: dict[str, int] = {}
    for each in listed:
        newest[each.spec.pool.name] = max(newest.get(each.spec.pool.name, 0), each.spec.pool.generation)
    for spec in (each.spec for each in sorted(listed, key=lambda each: each.metadata.name)):
        for device in spec.devices or () if spec.pool.generation == newest[spec.pool.name] else ():
            if not device.taints and not device.allow_multiple_allocations:
                yield spec.node_name or "", spec.driver, spec.pool.name, device.name
