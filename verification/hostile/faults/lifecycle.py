"""What Kubernetes itself does about a node that is not heard of, which the in-memory API server leaves out.

The node life-cycle controller writes that it is not ready, then evicts, but not who tolerates that for ever; a cloud's
controller deletes a node whose machine is gone; the pod garbage collector deletes by force pods that are bound to no
node (k8s.io documentation, "Nodes", "Pod Lifecycle" and "Taints and Tolerations"). Times are the controllers' defaults,
but for the cloud's, which has none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import msgspec

from kube.client.resources import NODES, PODS
from simulator.nodes import node_object
from simulator.nodes.kubelet import Kubelet
from verification.hostile.faults.ground import Ground
from wire.core import Pod, Toleration


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds after which a silent node is called not ready, its pods are evicted, and it is deleted (None: never).

    Pods are evicted at one time: all but reservations have the toleration of 300 s that the API server gives them.
    """

    unready_s: float = 40.0
    evict_s: float = 340.0
    forget_s: float | None = None


#: The taint that evicts from a node that is not heard of.
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_NO_EXECUTE: Final = "NoExecute"


class LifeCycle:
    """The controllers' part for one node: ``neglected`` while it is not heard of, ``returned`` when it is back."""

    def __init__(self, ground: Ground, kubelet: Kubelet) -> None:
        self._ground = ground
        self._kubelet = kubelet
        self._node = kubelet.shape.name
        self._is_forgotten = False

    async def neglected(self, patience: Patience, for_s: float) -> None:
        """Do what is done to a node in its first ``for_s`` seconds of silence."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._after, patience.unready_s, self._unready)
            group.start_soon(self._after, patience.evict_s, self._evict)
            if patience.forget_s is not None:
                group.start_soon(self._after, patience.forget_s, self._forget)
            await anyio.sleep(for_s)
            group.cancel_scope.cancel()

    async def returned(self) -> None:
        """Have the node registered and ready again."""
        if self._is_forgotten:
            await self._ground.insist(lambda: self._ground.world.nodes.register(self._node))
        else:
            await self._condition(is_ready=True)

    async def offers(self, devices: Mapping[str, int]) -> None:
        """Have the node offer a number of devices, as its kubelet does when the device plugin comes or goes."""
        told = {resource: str(count) for resource, count in devices.items()}
        await self._patch({"status": {"allocatable": told}}, subresource="status")

    async def cordon(self, *, is_closed: bool) -> None:
        """Close the node for new pods, or open it."""
        await self._patch({"spec": {"unschedulable": is_closed or None}})

    async def pods(self) -> list[Pod]:
        """Return the pods that are bound to the node."""
        listing = await self._ground.api.list(PODS, skip_undecodable=True)
        return [pod for pod in listing.items if pod.spec.node_name == self._node]

    async def delete(self, pod: Pod, *, grace_s: int | None = None) -> None:
        """Delete one of its pods."""
        meta, api = pod.metadata, self._ground.api
        await self._ground.insist(
            lambda: api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_s=grace_s)
        )

    async def _after(self, wait_s: float, act: Callable[[], Awaitable[None]]) -> None:
        await anyio.sleep(wait_s)
        # Not given up in the middle: the controllers don't stop when the node comes back.
        with anyio.CancelScope(shield=True):
            await act()

    async def _unready(self) -> None:
        await self._condition(is_ready=False)

    async def _evict(self) -> None:
        for pod in await self.pods():
            if not _stays_for_ever(pod):
                await self.delete(pod)

    async def _forget(self) -> None:
        self._is_forgotten = True
        await self._ground.insist(lambda: self._ground.api.delete(NODES, self._node))
        for pod in await self.pods():
            await self.delete(pod, grace_s=0)

    async def _condition(self, *, is_ready: bool) -> None:
        condition = node_object.readiness(is_ready=is_ready, now=self._kubelet.now())
        await self._patch({"status": {"conditions": [condition]}}, subresource="status")

    async def _patch(self, body: dict[str, Any], *, subresource: str = "") -> None:
        api = self._ground.api
        await self._ground.insist(lambda: api.patch(NODES, self._node, body, subresource=subresource))


def _stays_for_ever(pod: Pod) -> bool:
    """Whether it tolerates the taint, and no toleration says for how long: the shortest that is said counts."""
    matching = [each for each in pod.spec.tolerations or () if _is_of_taint(each)]
    return bool(matching) and all(each.toleration_seconds is None for each in matching)


def _is_of_taint(toleration: Toleration) -> bool:
    """Whether it matches the taint, which has no value (core/v1 Toleration)."""
    if toleration.effect not in {"", _NO_EXECUTE}:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    return toleration.key == _UNREACHABLE and (toleration.operator == "Exists" or not toleration.value)
