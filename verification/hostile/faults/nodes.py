"""Machines that die, reboot, are cut off, closed, emptied or replaced; kubelets that refuse or forget; device plugins.

What is promised is in the docstring of each kind. Where a node lost its power its containers are gone, so nothing
physical can be shared wrongly, however late the API server hears of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final

import anyio
import msgspec
from typing_extensions import override

from kube.client import errors
from kube.client.resources import NODES, PODS
from simulator.nodes import node_object
from simulator.nodes.kubelet import Kubelet
from verification.hostile.faults.ground import LOST_DEVICE, Ground, Timed
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
    """What Kubernetes itself does about a node that is not heard of, which the in-memory API server leaves out.

    The node life-cycle controller writes that it is not ready, then evicts, but not pods that tolerate that for ever; a
    cloud's controller deletes a node whose machine is gone; the pod garbage collector deletes by force pods that are
    bound to no node (k8s.io documentation, "Nodes", "Pod Lifecycle" and "Taints and Tolerations"). Times are the
    controllers' defaults, but for the cloud's, which has none. ``neglected`` while it is not heard of, ``returned``
    when it is back.
    """

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


class OnNode(Timed, frozen=True, kw_only=True):
    """A fault of the machine ``node``."""

    node: str

    @override
    async def _happen(self, ground: Ground) -> None:
        kubelet = ground.node(self.node)
        if kubelet is not None:
            await self._strike(ground, kubelet)

    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        """Let it happen to the node; return when it is over."""
        raise NotImplementedError


class Away(OnNode, frozen=True, kw_only=True):
    """The machine is down or not heard. One that is so already, by another fault, is left to that."""

    @override
    async def _happen(self, ground: Ground) -> None:
        kubelet = ground.node(self.node)
        if kubelet is not None and kubelet.is_answering:
            await self._strike(ground, kubelet)


class NodeLost(Away, frozen=True, kw_only=True, tag="node-lost"):
    """A machine loses its power, and has it back at the end.

    ``forget_s``: after this many seconds its Node is deleted and its pods by force; it registers again at the end
    (None: never). Everything is promised; pods on it start again, or go as the life-cycle controllers have it.
    """

    forget_s: float | None = None

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        life = LifeCycle(ground, kubelet)
        kubelet.die()
        await life.neglected(Patience(forget_s=self.forget_s), self.for_s)
        kubelet.boot()
        await life.returned()


class NodeRebooted(Away, frozen=True, kw_only=True, tag="node-rebooted"):
    """A machine goes down and comes up, with the device plugin before kubelet looks at its pods.

    Everything is promised: pods find the devices that they had.
    """

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        life = LifeCycle(ground, kubelet)
        kubelet.die()
        await life.neglected(Patience(), self.for_s)
        await life.returned()
        kubelet.boot()


class NodeReinstalled(Away, frozen=True, kw_only=True, tag="node-reinstalled"):
    """A machine reboots without the device manager's checkpoint: its pods are admitted again and get other devices.

    Or the device plugin answers ``plugin_s`` after kubelet: its pods with devices are refused, for good.
    So reservations lose theirs, and others may have them before anybody knows (protocol.md, A lost or foreign
    reservation): S2 can't be held, nor may the group be used further. S1 and S3 are promised: no share is given out
    on a device that tenants of another group still see.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE

    plugin_s: float = 0.0

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        life = LifeCycle(ground, kubelet)
        kubelet.die()
        await life.neglected(Patience(), max(0.0, self.for_s - self.plugin_s))
        await life.returned()
        if self.plugin_s:
            await life.offers(dict.fromkeys(kubelet.intake.offered, 0))
        kubelet.boot(forget_devices=not self.plugin_s, plugin=not self.plugin_s)
        if self.plugin_s:
            await anyio.sleep(ground.left_s(self.end_s))
            kubelet.intake.plugin_is_down = False
            await life.offers(kubelet.intake.offered)


class NodeCutOff(Away, frozen=True, kw_only=True, tag="node-cut-off"):
    """A machine is not heard and hears nothing; its containers go on. The line is back at the end.

    Everything is promised: pods that are deleted meanwhile stay on the API server until the node says that they ended.
    """

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        life = LifeCycle(ground, kubelet)
        kubelet.freeze()
        await life.neglected(Patience(), self.for_s)
        kubelet.thaw()
        await life.returned()


class NodeForgotten(Away, frozen=True, kw_only=True, tag="node-forgotten"):
    """A machine that is cut off is taken for gone: Node and pods are deleted while its containers run.

    Kubernetes itself promises nothing then ("at most one" needs the machine to be off). When it is back, what was
    deleted ends within its grace period, and until then its devices may be given to others: S1 and S2 can't be held.
    """

    unpromised: ClassVar[frozenset[str]] = frozenset({"S1", "S2", "S10"})

    forget_s: float

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        life = LifeCycle(ground, kubelet)
        kubelet.freeze()
        await life.neglected(Patience(forget_s=self.forget_s), self.for_s)
        kubelet.thaw()
        await life.returned()


class NodeCordoned(OnNode, frozen=True, kw_only=True, tag="node-cordoned"):
    """A node is closed for new pods and opened at the end. Everything is promised."""

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        life = LifeCycle(ground, kubelet)
        await life.cordon(is_closed=True)
        await anyio.sleep(self.for_s)
        await life.cordon(is_closed=False)


class NodeDrained(OnNode, frozen=True, kw_only=True, tag="node-drained"):
    """A node is closed, all its pods are evicted, reservation pods too, again and again; it is opened at the end.

    Everything is promised. Reservation pods with tenants have a budget, so they go when their tenants have gone.
    """

    again_s: float = 5.0

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        life = LifeCycle(ground, kubelet)
        await life.cordon(is_closed=True)
        with anyio.move_on_after(ground.left_s(self.end_s)):
            while True:
                await self._evict_all(ground, life)
                await anyio.sleep(self.again_s)
        await life.cordon(is_closed=False)

    async def _evict_all(self, ground: Ground, life: LifeCycle) -> None:
        for pod in await life.pods():
            try:
                await ground.api.evict(pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid)
            except errors.ApiError:
                # Gone already, or its budget allows no disruption now: tried again in the next round.
                continue


class KubeletRefuses(OnNode, frozen=True, kw_only=True, tag="kubelet-refuses"):
    """The kubelet refuses the next ``count`` pods, reservation pods included: UnexpectedAdmissionError.

    Everything is promised; the pods have failed, for Kubernetes never tries a pod twice.
    """

    count: int

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        kubelet.reject_next(self.count)
        await anyio.sleep(self.for_s)
        kubelet.reject_next(0)


class PluginDown(OnNode, frozen=True, kw_only=True, tag="plugin-down"):
    """The device plugin restarts: until the end the node offers no GPU and can give none; what runs goes on.

    Everything is promised.
    """

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        life = LifeCycle(ground, kubelet)
        kubelet.intake.plugin_is_down = True
        await life.offers(kubelet.intake.offered)
        await anyio.sleep(self.for_s)
        kubelet.intake.plugin_is_down = False
        await life.offers(kubelet.intake.offered)


class GpuIll(OnNode, frozen=True, kw_only=True, tag="gpu-ill"):
    """The device plugin says that the node's card number ``card`` is unhealthy, and well again at the end.

    Everything is promised: nobody comes to it, its tenants are evicted if that lasts, and others are not.
    """

    card: int

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        if not kubelet.devices:
            return
        life, device = LifeCycle(ground, kubelet), kubelet.devices[self.card % len(kubelet.devices)]
        for is_ill, for_s in ((True, self.for_s), (False, 0.0)):
            await kubelet.tell_health(device.uuid, is_ill=is_ill)
            await life.offers(kubelet.intake.offered)
            await anyio.sleep(for_s)


class PluginLags(OnNode, frozen=True, kw_only=True, tag="plugin-lags"):
    """Devices of pods that have ended can't be given out again for ``lag_s``, though the API server shows them free.

    Everything is promised; a pod that comes too early may be refused.
    """

    lag_s: float

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        kubelet.intake.lag_s = self.lag_s
        await anyio.sleep(self.for_s)
        kubelet.intake.lag_s = 0.0
        kubelet.intake.free_lagging()


class SlowStarts(OnNode, frozen=True, kw_only=True, tag="slow-starts"):
    """Each pod takes ``slow_s`` longer to start. Everything is promised; liveness is late by that."""

    slow_s: float

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        kubelet.faults.slow_start_s = self.slow_s
        await anyio.sleep(self.for_s)
        kubelet.faults.slow_start_s = 0.0


class NodeReplaced(Away, frozen=True, kw_only=True, tag="node-replaced"):
    """Another machine registers under the node's name, with cards of ``cards_mib``: a repair, or an autoscaler's.

    ``forget_s``: the old one's Node is deleted before, and its pods by force, and everything is promised. None: the
    Node stays, and the new machine finds the old one's pods bound to it. Their devices are nowhere: the devices of
    their reservations are lost, so S2 can't be held (see node-reinstalled), nor may they be used further.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE

    cards_mib: tuple[int, ...]
    forget_s: float | None = None

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        if self.node in ground.sliced:
            return  # its slices are not the shape's
        life, node = LifeCycle(ground, kubelet), self.node
        kubelet.die()
        await life.neglected(Patience(forget_s=self.forget_s), self.for_s)
        kubelet.refit(msgspec.structs.replace(kubelet.shape, cards_mib=self.cards_mib, slices=()))
        ground.world.checker.refitted(node, kubelet.devices)
        await ground.insist(lambda: ground.world.nodes.refitted(node))
        kubelet.boot()


class KubeletForgets(OnNode, frozen=True, kw_only=True, tag="kubelet-forgets"):
    """The kubelet's process restarts without the device manager's checkpoint, while its containers go on.

    It takes the devices of what runs for free and gives them out again: a whole GPU may be one that a share uses, and
    nobody but kubelet could know. So S2 can't be held, nor may the group of such a device be used further, and its
    tenants may be evicted though nobody has it in the end (S7). Two reservations that tell one device are still never
    both used: S1 is promised, and S3.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE | {"S7"}

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        kubelet.restart_without_checkpoint()
