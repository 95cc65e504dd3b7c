"""How much of the GPUs of each pool is used, free, in pieces, and stranded: exact, from the ledger.

A pool is what is alike for a request for a kind of GPU: nodes of one node pool (KAI's label) with one product. What no
pod of some kinds can take is counted by one look over the table's columns for each kind, with the answer of
``fragmentation.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_kind import Kind
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.nodes.ledger import MOST_ASKED, Ledger
from scheduler.core.nodes.table import (
    CLOSED,
    CPU,
    GPUS,
    IDLE,
    LARGEST_CARD,
    LEAVING,
    MEMORY,
    MIG,
    MULTIPLIED,
    PODS,
    Bools,
    Device,
    Int64s,
    Table,
)
from scheduler.core.report.fragmentation import (
    CAUSES,
    LACKS_CPU,
    LACKS_MEMORY,
    LACKS_POD_SLOTS,
    NANO_PER_MILLI,
    Cause,
    Use,
    out_of,
    use_of,
)
from wire import names

_NEEDED: Final = (CPU, MEMORY, PODS)


class Pool(msgspec.Struct, frozen=True, gc=False):
    """``node_pool`` "" and ``product`` "": the nodes' labels tell none."""

    node_pool: str
    product: str


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
        shared = [(device.free_nano, device.is_open) for device in devices if device.is_gpu]
        use = use_of(total[row], free[row], shared, can_be_had=can_be_had)
        sums = found.setdefault(pool_of(node), [0, 0, 0, 0])
        for number, nano in enumerate(use):
            sums[number] += nano
    return {Pool(*pool): Use(*sums) for pool, sums in sorted(found.items()) if any(sums)}


def pool_of(node: NodeRecord) -> tuple[str, str]:
    """Return the node pool and the product of a node's GPUs, as its labels tell them."""
    return node.labels.get(names.NODE_POOL_LABEL, ""), node.labels.get(names.NODE_GPU_PRODUCT, "")


Sets = npt.NDArray[np.uint8]

_CAUSES: Final = tuple(Cause)
#: Of each set of lacks the place of its cause in ``_CAUSES``, -1: usable; without kinds nothing is.
_NUMBER: Final = np.array([-1 if cause is None else _CAUSES.index(cause) for cause in CAUSES], np.int8)
#: A set of one lack.
_SET_OF: Final = np.array([1 << lack for lack in range(8)], np.uint8)
_USABLE: Final = 1


def fragmented_pools(
    ledger: Ledger, kinds: Sequence[Kind], settings: Settings, own: NodePool | None = None
) -> dict[Pool, dict[Cause, int]]:
    """Return the nano-GPU of each pool that are free and unusable, of every cause, from a ledger that was counted.

    ``own`` as for ``use_of_pools``, and what counts as a pool, too.
    """
    rows, nodes = _rows(ledger, own)
    sums = _Sums(nodes)
    ready = [number for number, node in enumerate(nodes) if out_of(node) is None]
    table, devices = ledger.table, ledger.table.devices
    for number, node in enumerate(nodes):
        cause = out_of(node)
        if cause is not None:
            left = sum(dev.free_nano for dev in devices[rows[number]] if dev.is_gpu)
            sums.add(number, cause, max(0, int(table.free[GPUS, rows[number]])) * NANO_PER_DEVICE + left)
    if ready:
        look = _Look(table.taken(np.array([rows[number] for number in ready], np.int64)), settings)
        for kind in kinds:
            look.take(kind)
        look.add_to(sums, np.array(ready, np.int64), knows_kinds=bool(kinds))
    return sums.by_pool()


def _rows(ledger: Ledger, own: NodePool | None) -> tuple[list[int], list[NodeRecord]]:
    """Rows of nodes that have, or had, GPUs."""
    total, devices = ledger.table.total[GPUS].tolist(), ledger.table.devices
    found = [
        (row, node)
        for row, node in enumerate(ledger.nodes)
        if node is not None and (total[row] or devices[row]) and (own is None or own.takes(node.labels))
    ]
    return [row for row, _ in found], [node for _, node in found]


class _Sums:
    """Nano-GPU by pool and cause."""

    def __init__(self, nodes: Sequence[NodeRecord]) -> None:
        pools: dict[tuple[str, str], int] = {}
        self._pool_of: Int64s = np.array([pools.setdefault(pool_of(node), len(pools)) for node in nodes], np.int64)
        self._pools = list(pools)
        self._nano: Int64s = np.zeros((len(pools), len(_CAUSES)), np.int64)

    def add(self, number: int, cause: Cause, nano: int) -> None:
        """Add to the pool of a node."""
        self._nano[self._pool_of[number], _CAUSES.index(cause)] += nano

    def add_all(self, numbers: Int64s, causes: npt.NDArray[np.int8], nano: Int64s) -> None:
        """Add to the pools of nodes; a cause of -1 is none."""
        there = (causes >= 0) & (nano > 0)
        np.add.at(self._nano, (self._pool_of[numbers[there]], causes[there]), nano[there])

    def by_pool(self) -> dict[Pool, dict[Cause, int]]:
        """All of it, in the order of the pools."""
        made = zip(self._pools, self._nano.tolist(), strict=True)
        return {Pool(*pool): dict(zip(_CAUSES, sums, strict=True)) for pool, sums in sorted(made)}


class _Look:
    """Nodes that take pods, and which sets of lacks kinds have beside their devices (``CAUSES``)."""

    def __init__(self, table: Table, settings: Settings) -> None:
        self._table = table
        self._settings = settings
        self._gpus = table.free[GPUS]
        self._coming_back = table.extra[IDLE] + table.extra[LEAVING]
        self._opens: Bools = (table.extra[MIG] == 0) & (table.extra[MULTIPLIED] == 0)
        #: Beside a device that nobody has, beside each slot of one that is shared; of kinds of whole devices apart.
        self._beside_free: Sets = np.zeros(len(table.devices), np.uint8)
        self._beside_slots: Sets = np.zeros(table.share_nano.shape, np.uint8)
        self._of_whole: Sets = np.zeros(len(table.devices), np.uint8)

    def take(self, kind: Kind) -> None:
        """Look where a pod of this kind could be."""
        if kind.is_whole:
            fits = self._gpus + self._coming_back >= min(kind.devices, MOST_ASKED)
            self._of_whole |= np.where(fits, self._lacks(kind, 0), 0)
            return
        table, gpus = self._table, self._gpus
        if kind.device_mib:
            holds = table.share_mib >= min(kind.device_mib, MOST_ASKED)
        else:
            holds = table.share_nano >= kind.milli * NANO_PER_MILLI
        can_open = self._opens & (table.extra[LARGEST_CARD] >= min(kind.device_mib, MOST_ASKED))
        missing = np.maximum(min(kind.devices, MOST_ASKED) - holds.sum(axis=0), 0)
        fits = self._opens & (gpus >= missing) & (can_open | (missing == 0))
        self._beside_slots |= np.where(holds, np.where(fits, self._lacks(kind, missing), 0), 0)
        missing = np.maximum(missing, 1)
        fits = can_open & (gpus >= missing)
        self._beside_free |= np.where(fits, self._lacks(kind, missing), 0)

    def _lacks(self, kind: Kind, opened: Int64s | int) -> Sets:
        """What a kind lacks on each node, as a set of one, where ``opened`` devices are opened for it."""
        free, settings = self._table.free, self._settings
        opened = np.minimum(opened, 1 << 16)  # no node has more; and a product stays small
        cpu = min(kind.cpu_milli, MOST_ASKED) + opened * settings.reservation_cpu_milli
        memory = min(kind.mem_mib, MOST_ASKED) + opened * settings.reservation_mem_mib
        lack = np.where((free[CPU] < cpu) & (cpu > 0), LACKS_CPU, 0)
        lack |= np.where((free[MEMORY] < memory) & (memory > 0), LACKS_MEMORY, 0)
        lack |= np.where(free[PODS] < 1 + opened, LACKS_POD_SLOTS, 0)
        found: Sets = _SET_OF.take(lack)
        return found

    def add_to(self, sums: _Sums, numbers: Int64s, *, knows_kinds: bool) -> None:
        """Add what is unusable on these nodes."""
        table = self._table
        if knows_kinds:
            free = _NUMBER.take(self._beside_free | self._of_whole)
            sums.add_all(numbers, free, np.maximum(self._gpus, 0) * NANO_PER_DEVICE)
        taken = (table.share_nano != CLOSED).sum(axis=0)
        for column, devices in enumerate(table.devices):
            if self._coming_back[column] or len(devices) != taken[column]:
                self._look_closer(column, devices, sums, int(numbers[column]))
        if knows_kinds:
            for nano, found in zip(table.share_nano, self._beside_slots, strict=True):
                sums.add_all(numbers, _NUMBER.take(found), nano)

    def _look_closer(self, column: int, devices: Sequence[Device], sums: _Sums, number: int) -> None:
        """Have kinds of whole devices take those that come back, and add those that are closed to shares."""
        of_whole = self._of_whole[column]
        for slot, dev in enumerate(devices):
            comes_back = dev.is_gpu and (dev.is_idle or dev.is_leaving)
            if dev.is_gpu and self._table.share_nano[slot, column] == CLOSED:
                if not (comes_back and of_whole & _USABLE):
                    sums.add(number, Cause.CLOSED, dev.free_nano)
            elif comes_back:
                self._beside_slots[slot, column] |= of_whole
