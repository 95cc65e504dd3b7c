"""A node's GPUs in the terms of Aliyun's gpushare: memory of devices in whole units, by the index of the device.

The names of the fields are those of its extender's inspect API (docs/inspect.md), which tools read. A unit is a GiB
or a MiB, as its plugin's administrator chose. What the pods of a device may use together is rounded up to whole units,
what it has down; each pod is rounded up for itself, so the sum over pods may be more than what is used of the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from gpu.share import memory_from_nano
from scheduler.core.report.node_view import DeviceView, Kind, NodeView, TenantView

#: Of a device of which nobody has told which one of its node it is.
UNKNOWN: Final = -1


class PodUse(msgspec.Struct, frozen=True, gc=False):
    """A pod on a device, and how many units of it are its."""

    name: str
    namespace: str
    used: int = msgspec.field(name="usedGPU")


class DeviceUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A device by its index, or UNKNOWN."""

    id: int
    total: int = msgspec.field(name="totalGPU")
    used: int = msgspec.field(name="usedGPU")
    pods: tuple[PodUse, ...] = ()


class NodeUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node and its devices, those of known index first."""

    name: str
    total: int = msgspec.field(name="totalGPU")
    used: int = msgspec.field(name="usedGPU")
    devices: tuple[DeviceUse, ...] = msgspec.field(name="devs", default=())


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What the API answers. ``error``: why there is nothing to be said, else left out."""

    nodes: tuple[NodeUse, ...]
    error: str | msgspec.UnsetType = msgspec.UNSET


def node_use(node: NodeView, *, unit_mib: int) -> NodeUse:
    """Tell of one node. A card of which nobody knows the memory has none here; MIG slices are not in these terms."""
    devices = tuple(_devices([device for device in node.devices if device.is_gpu], node.smallest_card_mib, unit_mib))
    return NodeUse(
        name=node.name,
        total=sum(device.total for device in devices),
        used=sum(device.used for device in devices),
        devices=devices,
    )


def _devices(shown: Sequence[DeviceView], smallest_card_mib: int, unit_mib: int) -> Iterator[DeviceUse]:
    """All devices. Free ones have an index where it is certain: when the indexes of all others are known."""
    indexes = {device.index for device in shown if device.index >= 0}
    others = [device for device in shown if device.index < 0]
    left = [index for index in range(len(shown)) if index not in indexes]
    are_certain = len(left) == len(others) and all(device.kind is Kind.FREE for device in others)
    numbered = [(device.index, device) for device in shown if device.index >= 0]
    numbered += zip(left if are_certain else [UNKNOWN] * len(others), others, strict=True)
    for index, device in sorted(numbered, key=lambda one: (one[0] < 0, one[0])):
        yield _device(index, device, smallest_card_mib, unit_mib)


def _device(index: int, device: DeviceView, smallest_card_mib: int, unit_mib: int) -> DeviceUse:
    """A device whose card is not known counts as the smallest of its node, as for the scheduler."""
    card_mib = device.mem_mib or smallest_card_mib
    total = card_mib // unit_mib
    used_mib = sum(memory_from_nano(tenant.nano, card_mib) for tenant in device.tenants)
    pods = tuple(_pods(device.tenants, card_mib, unit_mib))
    return DeviceUse(id=index, total=total, used=min(total, -(-used_mib // unit_mib)), pods=pods)


def _pods(tenants: Iterable[TenantView], card_mib: int, unit_mib: int) -> Iterator[PodUse]:
    for tenant in tenants:
        used = -(-memory_from_nano(tenant.nano, card_mib) // unit_mib)
        yield PodUse(tenant.name, tenant.namespace, min(used, card_mib // unit_mib))
