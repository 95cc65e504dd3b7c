"""How much of the GPUs of each pool is used, free, in pieces, and stranded: exact, from the ledger.

A pool is what is alike for a request for a kind of GPU: nodes of one node pool (KAI's label) with one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import NodePool
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.table import CPU, GPUS, MEMORY, PODS, Device
from wire import names

_NEEDED: Final = (CPU, MEMORY, PODS)


class Pool(msgspec.Struct, frozen=True, gc=False):
    """``node_pool`` "" and ``product`` "": the nodes' labels tell none."""

    node_pool: str
    product: str


class Use(msgspec.Struct, frozen=True, gc=False):
    """Nano-GPU. All four together are what the pool's device plugins offer, unless more is used than that.

    ``free``: whole devices. ``pieces``: what is left of shared devices that take tenants. ``stranded``: what is free
    and nobody can get now: on nodes that are not ready, cordoned, or without CPU, memory or pod slots, and on shared
    devices that are closed.
    """

    used: int = 0
    free: int = 0
    pieces: int = 0
    stranded: int = 0


def use_of_pools(ledger: Ledger, own: NodePool | None = None) -> dict[Pool, Use]:
    """Add up what a ledger that was counted says of nodes with GPUs. 10,000 of them take some tens of milliseconds.

    ``own``: the only node pool that is looked at, as others have schedulers that look at theirs.
    """
    table = ledger.table
    total, free = table.total[GPUS].tolist(), table.free[GPUS].tolist()
    has_room = np.all(table.free[list(_NEEDED)] > 0, axis=0).tolist()
    found: dict[tuple[str, str], list[int]] = {}
    for row, node in enumerate(ledger.nodes):
        devices = table.devices[row]
        if node is None or not (total[row] or devices) or not (own is None or own.takes(node.labels)):
            continue
        can_be_had = has_room[row] and node.is_ready and not node.is_cordoned
        use = _use(total[row], free[row], devices, can_be_had=can_be_had)
        sums = found.setdefault(pool_of(node), [0, 0, 0, 0])
        for number, nano in enumerate(use):
            sums[number] += nano
    return {Pool(*pool): Use(*sums) for pool, sums in sorted(found.items()) if any(sums)}


def _use(total: int, free: int, devices: Sequence[Device], *, can_be_had: bool) -> tuple[int, int, int, int]:
    """What is used, free, in pieces and stranded of one node.

    ``free`` below zero: more is used than is offered, since devices fell ill, say. MIG slices are left out.
    """
    shared = left = pieces = 0
    for device in devices:
        if device.is_gpu:
            shared += 1
            left += device.free_nano
            pieces += device.free_nano if device.is_open and can_be_had else 0
    whole = max(0, total - free - shared)
    unused = max(0, free) * NANO_PER_DEVICE
    got = unused if can_be_had else 0
    return (whole + shared) * NANO_PER_DEVICE - left, got, pieces, unused + left - got - pieces


def pool_of(node: NodeRecord) -> tuple[str, str]:
    """Return the node pool and the product of a node's GPUs, as its labels tell them."""
    return node.labels.get(names.NODE_POOL_LABEL, ""), node.labels.get(names.NODE_GPU_PRODUCT, "")
