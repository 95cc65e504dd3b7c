"""The device manager of a simulated node: which physical GPUs a container gets, as kubelet and the device plugin do it.

It is the arbiter of whole devices (docs/design/protocol.md, Whole GPUs): a device is free when no pod that is still on
the node holds it, even if the API server says something else by then.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from simulator.shape import NodeShape, slice_mib
from wire import names

_UUIDS: Final = uuid.UUID("0d1f6f1e-9d0b-4f5a-8a5e-1f1a3f6c2b77")
_CARD: Final = "GPU-"
_SLICE: Final = "MIG-"


class Device(msgspec.Struct, frozen=True, gc=False):
    """One physical GPU, or one MIG slice: its place on the node, the UUID that NVML tells, its memory.

    ``resource``: by which name the device plugin hands it out. ``profile``: of a slice, "" for a card.
    """

    index: int
    uuid: str
    mem_mib: int
    resource: str = names.GPU_RESOURCE
    profile: str = ""

    @property
    def is_slice(self) -> bool:
        """Whether it is a part of a card: NVML has no index for it, only for its card."""
        return bool(self.profile)


class Shortage(msgspec.Struct, frozen=True, gc=False):
    """Fewer devices are free than were asked for."""

    requested: int
    available: int


def make_devices(shape: NodeShape, *, seed: int, refits: int = 0) -> tuple[Device, ...]:
    """Make the cards of a node, then its slices; UUIDs follow from the seed, the node's name and the place.

    ``refits``: how often the machine was replaced by another one, whose cards have UUIDs of their own.
    """
    origin = f"{seed}/{shape.name}/{refits}" if refits else f"{seed}/{shape.name}"
    cards = [(_CARD, mem_mib, names.GPU_RESOURCE, "") for mem_mib in shape.cards_mib]
    slices = [(_SLICE, slice_mib(profile), shape.resource_of(profile), profile) for profile in shape.slices]
    return tuple(
        Device(index, f"{prefix}{uuid.uuid5(_UUIDS, f'{origin}/{index}')}", mem_mib, resource, profile)
        for index, (prefix, mem_mib, resource, profile) in enumerate([*cards, *slices])
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

    ``save`` is called with what is given out whenever that has changed (simulator/checkpoint.py).
    """

    order: tuple[Device, ...]
    save: Callable[[Held], None] = _keep_nothing
    #: Unhealthy devices (UUIDs): their holders keep them, no other pod gets them.
    ill: set[str] = field(default_factory=set)
    #: Devices (UUIDs) that the device plugin takes back for a time: their holders keep them, and are not told.
    withdrawn: set[str] = field(default_factory=set)
    #: Resources that were handed out once: kubelet tells them, with 0 where no device of one is left.
    known: set[str] = field(default_factory=set)
    _held: Held = field(default_factory=dict)

    def restore(self, held: Held) -> None:
        """Take up what was given out before a restart."""
        self._held = dict(held)

    @property
    def pods(self) -> set[str]:
        """UIDs of the pods that hold devices."""
        return {uid for uid, _ in self._held}

    @property
    def resources(self) -> tuple[str, ...]:
        """What the node hands out, sorted."""
        return tuple(sorted(self.known.union(device.resource for device in self.order)))

    @property
    def listed(self) -> dict[str, int]:
        """How many devices of each resource of ``known`` there are, healthy or not."""
        return {name: sum(device.resource == name for device in self.order) for name in sorted(self.known)}

    def well(self, resource: str) -> int:
        """How many devices of a kind are healthy, given out or not."""
        return sum(device.resource == resource and device.uuid not in self.unusable for device in self.order)

    @property
    def unusable(self) -> set[str]:
        """Devices (UUIDs) that no further pod gets."""
        return self.ill | self.withdrawn

    def allocate(
        self,
        pod_uid: str,
        container: str,
        count: int,
        *,
        resource: str = names.GPU_RESOURCE,
        lent: Iterable[Device] = (),
    ) -> tuple[Device, ...] | Shortage:
        """Give ``count`` devices of a kind to a container, the same when it comes again after a restart.

        Devices ``lent`` by init containers of the pod come first.
        """
        if count == 0:
            return ()
        others = self.held(pod_uid, container)
        if before := tuple(device for device in others if device.resource == resource):
            return before
        taken = {device.uuid for devices in self._held.values() for device in devices}
        reusable = dict.fromkeys(lent)
        free = [
            *(device for device in reusable if device.resource == resource),
            *(d for d in self.order if d.resource == resource and d.uuid not in taken | self.unusable),
        ]
        if len(free) < count:
            return Shortage(count, len(free))
        chosen = tuple(sorted(free[:count], key=lambda device: device.index))
        self._held[pod_uid, container] = others + chosen
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
