"""The device manager of a simulated node: which physical GPUs a container gets, as kubelet and the device plugin do it.

It is the arbiter of whole devices (docs/design/protocol.md, Whole GPUs): a device is free when no pod that is still on
the node holds it, even if the API server says something else by then.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import msgspec

from simulator.nodes.shape import NodeShape, slice_mib
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

    ``save`` is called with what is given out whenever that has changed.
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


_Index = Annotated[int, msgspec.Meta(ge=0)]


class BadCheckpoint(ValueError):
    """Raised when a file is no checkpoint of this node; names it."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A folder with one file for each node: ``pod UID/container`` -> indices of its devices.

    Kubelet has such a file as well (``kubelet_internal_checkpoint``), and without it a restart looks like a swap of
    cards.
    """

    folder: Path

    def load(self, node: str, devices: Sequence[Device]) -> Held:
        """Return what was saved last, nothing where nothing was. Raises BadCheckpoint."""
        path = self._path(node)
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=dict[str, list[_Index]])
            return {_key(text): tuple(devices[index] for index in indices) for text, indices in saved.items()}
        except FileNotFoundError:
            return {}
        except (msgspec.DecodeError, IndexError) as error:
            raise BadCheckpoint(
                f"{path}: not what a node with {len(devices)} GPUs gave out ({error}); remove it to forget it"
            ) from error

    def save(self, node: str, held: Mapping[tuple[str, str], Sequence[Device]]) -> None:
        """Write what is given out, all or nothing."""
        plain = {f"{uid}/{container}": [device.index for device in given] for (uid, container), given in held.items()}
        path = self._path(node)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(plain))
        fresh.replace(path)

    def _path(self, node: str) -> Path:
        return self.folder / f"{node}.json"


def _key(text: str) -> tuple[str, str]:
    uid, _, container = text.partition("/")
    return uid, container
