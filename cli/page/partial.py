"""A node of which some pods may not be read: what can be said of its devices, and what can't. Pure.

Who may read some namespaces alone is shown their pods, and nothing is idle: somebody else may be there. What is left
of a shared device is known where its reservation pod may be read: the book on it (gpu/book.py) names all tenants.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from cli.page.values import Device, NodeCard, Tenant
from gpu.share import NANO_PER_DEVICE
from scheduler.core.report.node_view import Kind

#: A device of which nobody who may be read has a share.
UNKNOWN: Final = "unknown"


def as_far_as_known(card: NodeCard | None, namespaces: Collection[str] | None) -> NodeCard | None:
    """Take back what was concluded from what is not seen: what is idle, left or stranded, and that books are gone.

    ``namespaces``: those whose pods were read; None: all, so there is nothing to take back.
    """
    if card is None or namespaces is None:
        return card
    return msgspec.structs.replace(
        card,
        is_partly_known=True,
        unknown_nano=max(0, card.gpus * NANO_PER_DEVICE - card.used_nano),
        idle_nano=0,
        pieces_nano=0,
        stranded_nano=0,
        devices=tuple(_device(device, namespaces) for device in card.devices),
    )


def _device(device: Device, namespaces: Collection[str]) -> Device:
    if device.kind == Kind.FREE.value:
        return msgspec.structs.replace(device, kind=UNKNOWN, free_nano=0)
    if device.kind == Kind.SHARED.value and not device.reservation:
        return msgspec.structs.replace(device, is_partly_known=True, free_nano=0, closed=())
    return msgspec.structs.replace(device, tenants=tuple(_tenant(tenant, namespaces) for tenant in device.tenants))


def _tenant(tenant: Tenant, namespaces: Collection[str]) -> Tenant:
    """The book tells of others' pods how much they have, and not whether they have come, nor their queues."""
    if tenant.namespace in namespaces:
        return tenant
    return Tenant(nano=tenant.nano, mem_mib=tenant.mem_mib, is_hidden=True)
