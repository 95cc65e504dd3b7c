"""Machines that die, reboot, are cut off, closed or emptied; kubelets that refuse; device plugins that go or lag.

What is promised stands with each kind. Where a node lost its power its containers are gone, so nothing physical can be
shared wrongly, however late the API server hears of it.
"""

from __future__ import annotations

from typing import ClassVar

import anyio
from typing_extensions import override

from kube.client import errors
from simulator.nodes.kubelet import Kubelet
from verification.hostile.faults.ground import Ground
from verification.hostile.faults.lifecycle import LifeCycle, Patience
from verification.hostile.faults.timed import LOST_DEVICE, Timed


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
