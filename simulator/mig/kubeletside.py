"""What kubelet knows of MIG slices: the list that the plug-in sent it, and what it shows of pods and devices.

kubelet reads the list late. It gives a slice at once, and shows the pod that has it up to two seconds later. After a
restart it shows no pod for a while, and offers nothing before the plug-in has registered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

import anyio

from nodeagent.kubeletapi.client import Life, Unanswered
from nodeagent.kubeletapi.podresources import Devices, PodDevices
from simulator.devices import Device
from simulator.kubelet import Kubelet
from simulator.witness import Held, Record

#: A pod is shown in less than this after it was given its devices (nodeagent/core/mig_partitioning.py).
_SHOWN_S: Final = 1.9


@dataclass(slots=True)
class KubeletSide:
    """nodeagent.mig.partitioning.Kubelet of one machine. ``told`` is called when the node offers other devices."""

    kubelet: Kubelet
    rng: random.Random
    told: Callable[[], None] = lambda: None
    _life: int = 1
    _blind_until_s: float = 0.0
    #: Since when each pod (UID) has its slices, and when kubelet shows that.
    _shown_s: dict[str, float] = field(default_factory=dict)
    #: Devices of other kinds than slices on demand, which another plug-in serves.
    _plain: tuple[Device, ...] = ()

    def __post_init__(self) -> None:
        self._plain = self.kubelet.devices

    def witnessed(self, record: Record) -> None:
        """Take what happened on a machine."""
        if isinstance(record, Held) and record.node == self.kubelet.shape.name:
            self._shown_s[record.pod_uid] = anyio.current_time() + self.rng.uniform(0.0, _SHOWN_S)

    def hear(self, listed: Collection[Device], withdrawn: Collection[str]) -> None:
        """Read the plug-in's list; ``withdrawn`` are unhealthy."""
        manager = self.kubelet.intake.manager
        manager.known.update(device.resource for device in listed)
        manager.order = (*self._plain, *listed)
        manager.withdrawn = {device.uuid for device in listed} & set(withdrawn)
        self.told()

    def lose_plugin(self) -> None:
        """Notice that the plug-in is gone: none of its devices is healthy."""
        manager = self.kubelet.intake.manager
        manager.withdrawn.update(device.uuid for device in manager.order if device.is_slice)
        self.told()

    def restart(self, blind_s: float) -> None:
        """Be another process, which shows no pods for a time. What pods have is in its checkpoint."""
        self._life += 1
        self._blind_until_s = anyio.current_time() + blind_s
        self.lose_plugin()

    # --- what it answers on its socket -------------------------------------------------------------------------------

    def life(self) -> Life:
        """Tell one kubelet from the next."""
        return (self._life, 0) if self.kubelet.is_on else None

    async def list(self) -> tuple[PodDevices, ...]:
        """Return what pods were given. Raises Unanswered."""
        self._reach()
        if anyio.current_time() < self._blind_until_s:
            return ()
        return tuple(self._pods())

    async def allocatable(self) -> tuple[Devices, ...]:
        """Return all devices that would be given. Raises Unanswered."""
        self._reach()
        manager = self.kubelet.intake.manager
        return tuple(
            Devices(device.resource, (device.uuid,)) for device in manager.order if device.uuid not in manager.unusable
        )

    def _pods(self) -> Iterator[PodDevices]:
        manager, now_s = self.kubelet.intake.manager, anyio.current_time()
        for uid in sorted(manager.pods):
            if self._shown_s.get(uid, 0.0) <= now_s:
                given = (Devices(device.resource, (device.uuid,)) for device in manager.held_by_pod(uid))
                yield PodDevices("", uid, tuple(given))

    def _reach(self) -> None:
        if not self.kubelet.is_on:
            raise Unanswered("nobody listens")
