"""The device manager of a simulated node: which physical GPUs a container gets, as kubelet and the device plugin do it.

It is the arbiter of whole devices (docs/design/protocol.md, Whole GPUs): a device is free when no pod that is still on
the node holds it, whatever the API server says by then.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

_UUIDS: Final = uuid.UUID("0d1f6f1e-9d0b-4f5a-8a5e-1f1a3f6c2b77")


class Device(msgspec.Struct, frozen=True, gc=False):
    """One physical GPU: its index on the node, the UUID that NVML tells, its memory."""

    index: int
    uuid: str
    mem_mib: int


class Shortage(msgspec.Struct, frozen=True, gc=False):
    """Fewer devices are free than were asked for."""

    requested: int
    available: int


def make_devices(node: str, cards_mib: Sequence[int], *, seed: int) -> tuple[Device, ...]:
    """Make the cards of a node; their UUIDs follow from the seed, the node's name and the index."""
    return tuple(
        Device(index, f"GPU-{uuid.uuid5(_UUIDS, f'{seed}/{node}/{index}')}", mem_mib)
        for index, mem_mib in enumerate(cards_mib)
    )


def shuffled(devices: Sequence[Device], rng: random.Random) -> tuple[Device, ...]:
    """Return the devices in a random order: kubelet's own choice follows from a set, so no order may be relied on."""
    order = list(devices)
    rng.shuffle(order)
    return tuple(order)


#: (pod UID, container name) -> devices; a pod's init containers lend theirs to the containers after them.
Held = dict[tuple[str, str], tuple[Device, ...]]


def _keep_nothing(_: Held) -> None: ...


@dataclass(slots=True)
class DeviceManager:
    """Hands out the devices of one node, the first free one in ``order`` first.

    ``save`` is told what is given out whenever that has changed (simulator/checkpoint.py).
    """

    order: tuple[Device, ...]
    save: Callable[[Held], None] = _keep_nothing
    #: Devices (UUIDs) that are unhealthy: whoever has one keeps it, nobody gets it.
    ill: set[str] = field(default_factory=set)
    _held: Held = field(default_factory=dict)

    def restore(self, held: Held) -> None:
        """Take up what was given out before a restart."""
        self._held = dict(held)

    @property
    def pods(self) -> set[str]:
        """UIDs of the pods that hold devices."""
        return {uid for uid, _ in self._held}

    def allocate(
        self, pod_uid: str, container: str, count: int, *, lent: Iterable[Device] = ()
    ) -> tuple[Device, ...] | Shortage:
        """Give ``count`` devices to a container, the same when it comes again after a restart.

        Devices ``lent`` by init containers of the pod come first.
        """
        if count == 0:
            return ()
        if before := self._held.get((pod_uid, container)):
            return before
        taken = {device.uuid for devices in self._held.values() for device in devices}
        reusable = list(dict.fromkeys(lent))
        free = reusable + [device for device in self.order if device.uuid not in taken | self.ill]
        if len(free) < count:
            return Shortage(count, len(free))
        chosen = tuple(sorted(free[:count], key=lambda device: device.index))
        self._held[pod_uid, container] = chosen
        self.save(self._held)
        return chosen

    def held(self, pod_uid: str, container: str) -> tuple[Device, ...]:
        """Devices of one container."""
        return self._held.get((pod_uid, container), ())

    def held_by_pod(self, pod_uid: str) -> tuple[Device, ...]:
        """Distinct devices of all containers of a pod, by index."""
        devices = {d for (uid, _), held in self._held.items() if uid == pod_uid for d in held}
        return tuple(sorted(devices, key=lambda device: device.index))

    def free(self, pod_uid: str) -> None:
        """Take back all devices of a pod."""
        kept = {key: devices for key, devices in self._held.items() if key[0] != pod_uid}
        if len(kept) < len(self._held):
            self._held = kept
            self.save(kept)
