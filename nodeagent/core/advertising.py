"""The ids of devices that kubelet sees: the same as those of NVIDIA's device plugin.

So one plug-in can take the place of the other while pods run: kubelet's checkpoint of devices stays true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from nodeagent.core.resources import Device, Resource

_REPLICA: Final = "::"


def ids(device: Device) -> Iterator[str]:
    """``UUID`` of an exclusive device, ``UUID::0`` and so on of a replicated one."""
    if not device.replicas:
        yield device.uuid
    for number in range(device.replicas):
        yield f"{device.uuid}{_REPLICA}{number}"


def uuid_of(device_id: str) -> str:
    """The device of an id."""
    return device_id.partition(_REPLICA)[0]


def is_replica(device_id: str) -> bool:
    """Whether an id is one of several of its device."""
    return _REPLICA in device_id


def by_id(resource: Resource) -> Mapping[str, Device]:
    """Each id of a resource and its device, in the order in which they are listed."""
    return {each: device for device in resource.devices for each in ids(device)}


def listed(resource: Resource, ill: Collection[str]) -> Iterator[tuple[str, bool, int | None]]:
    """Each id, whether it is healthy, and its NUMA node. ``ill``: UUIDs of GPUs and slices.

    All replicas of a device change together, and slices with their GPU.
    """
    for device in resource.devices:
        is_well = device.uuid not in ill and device.card not in ill
        for each in ids(device):
            yield each, is_well, device.numa
