"""The node table as arrays: what is left of every node, one column a node.

Arrays are ``[resource, node]`` and ``[device slot, node]``, so that a look over all nodes runs along memory. The
devices of one node are a tuple beside them, because below some 200 elements Python's own sequences are faster.
The ledger owns one table; a decision works on a copy in the order of node names.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.node_usage import Group, largest_free_mib
from wire import names

Int64s = npt.NDArray[np.int64]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
#: All positions, or some.
Selection = slice | Int64s

#: Resource rows that every table has; extended resources follow as nodes bring them.
CPU: Final = 0
MEMORY: Final = 1
EPHEMERAL: Final = 2
PODS: Final = 3
GPUS: Final = 4
RESOURCES: Final = (
    names.CPU_RESOURCE,
    names.MEMORY_RESOURCE,
    names.EPHEMERAL_STORAGE_RESOURCE,
    names.PODS_RESOURCE,
    names.GPU_RESOURCE,
)
LEFT_BITS: Final = 20
MILLI_PER_GPU: Final = 1_000
_NANO_PER_MILLI: Final = NANO_PER_DEVICE // MILLI_PER_GPU
#: In a device slot that takes no tenant.
CLOSED: Final = -1
#: Row of a slice of which no node ever had any to give.
_NOBODYS: Final = -2


class Device(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A shared device as a decision sees it. ``free_mib``: the largest memory ask that fits, CLOSED for none.

    ``card_mib``: its memory as reported, 0 if unknown. ``is_idle``: could be given back whole. ``is_contended``: closed
    because tenants use a device that their reservation lost. ``modes``: of its tenants, sorted.
    ``free_compute_percent``: compute that no tenant asks.
    """

    group: str
    free_nano: int
    card_mib: int
    is_open: bool
    is_idle: bool = False
    is_leaving: bool = False
    is_contended: bool = False
    reservation: Reservation | None = None
    modes: tuple[str, ...] = ()
    #: What the vendor's plugin calls it: a GPU or a MIG slice.
    resource: str = names.GPU_RESOURCE
    free_compute_percent: int = PERCENT_PER_DEVICE

    def suits(self, mode: str) -> bool:
        """Whether a tenant of this mode ("" for any) may be beside those that are there."""
        return not mode or self.modes in {(), (mode,)}

    @property
    def is_gpu(self) -> bool:
        """Whether the vendor's plugin calls it a GPU: on a node of the strategy ``single`` it is a slice."""
        return self.resource == names.GPU_RESOURCE

    @property
    def is_answered(self) -> bool:
        """Whether its reservation said which device it holds: nothing more is asked of the node."""
        return self.reservation is not None and self.reservation.is_told

    @property
    def is_silent(self) -> bool:
        """Whether it has tenants and its reservation does not say which device it is."""
        return self.reservation is not None and not self.is_answered and self.free_nano < NANO_PER_DEVICE

    @property
    def is_ill(self) -> bool:
        """Whether its device plugin says that it is unhealthy."""
        return self.reservation is not None and self.reservation.is_ill


def device(group: Group) -> Device:
    """The decision's view of a counted group."""
    return Device(
        group=group.id,
        free_nano=group.free_nano,
        card_mib=group.mem_mib,
        is_open=group.is_open,
        is_idle=group.is_idle,
        is_leaving=group.is_leaving,
        is_contended=group.is_contended,
        reservation=group.reservation,
        modes=tuple(sorted(group.modes)),
        resource=group.resource,
        free_compute_percent=group.free_compute_percent,
    )


def largest_ask_mib(dev: Device, smallest_card_mib: int, largest_card_mib: int) -> int:
    """The largest memory ask that ``dev`` can take; CLOSED if it takes none."""
    if not dev.is_open:
        return CLOSED
    return largest_free_mib(dev.free_nano, dev.card_mib, smallest_card_mib, largest_card_mib)


#: Rows of ``Table.extra``: what is left of the node's GPUs, whole and in parts, in milli-GPU (rounded down, cut to
#: LEFT_BITS); devices that are idle, that are leaving; largest card in MiB (0 unknown); 1 if the node refuses shares
#: because of MIG, 1 if because its GPUs are offered several times; devices that nobody is let on: contended, silent,
#: unhealthy.
LEFT_MILLI: Final = 0
IDLE: Final = 1
LEAVING: Final = 2
LARGEST_CARD: Final = 3
MIG: Final = 4
MULTIPLIED: Final = 5
CONTENDED_DEVICES: Final = 6
SILENT_DEVICES: Final = 7
ILL_DEVICES: Final = 8
EXTRAS: Final = (
    LEFT_MILLI, IDLE, LEAVING, LARGEST_CARD, MIG, MULTIPLIED, CONTENDED_DEVICES, SILENT_DEVICES, ILL_DEVICES,
)  # fmt: skip


class Table:
    """What is left of each node. Columns without a node have nothing and take no tenant.

    ``free`` and ``total``: amount per resource. ``share_nano`` and ``share_mib``: what is free in each device slot and
    the largest memory ask that fits there, CLOSED where no tenant of a card may enter. ``slice_nano`` and
    ``slice_row``: the same of MIG slices, and the row of their resource (docs/design/slices.md); without slots as long
    as none is shared. ``extra``: see the constants.
    """

    __slots__ = (
        *("devices", "extra", "free", "resources", "share_mib", "share_nano", "slice_nano", "slice_row", "total"),
    )

    def __init__(self) -> None:
        self.resources: list[str] = list(RESOURCES)
        self.free: Int64s = np.zeros((len(RESOURCES), 0), np.int64)
        self.total: Int64s = np.zeros((len(RESOURCES), 0), np.int64)
        self.extra: Int64s = np.zeros((len(EXTRAS), 0), np.int64)
        self.share_nano: Int64s = np.zeros((0, 0), np.int64)
        self.share_mib: Int64s = np.zeros((0, 0), np.int64)
        self.slice_nano: Int64s = np.zeros((0, 0), np.int64)
        self.slice_row: Int64s = np.zeros((0, 0), np.int64)
        self.devices: list[tuple[Device, ...]] = []

    def taken(self, order: Int64s | slice) -> Self:
        """A copy with the columns of ``order`` in that order."""
        copy = type(self)()
        copy.resources = self.resources
        copy.free = self.free[:, order].copy()
        copy.total = self.total[:, order].copy()
        copy.extra = self.extra[:, order].copy()
        copy.share_nano = self.share_nano[:, order].copy()
        copy.share_mib = self.share_mib[:, order].copy()
        copy.slice_nano = self.slice_nano[:, order].copy()
        copy.slice_row = self.slice_row[:, order].copy()
        if isinstance(order, slice):
            copy.devices = self.devices[order]
        else:
            copy.devices = [self.devices[row] for row in order.tolist()]
        return copy

    def put_devices(self, column: int, node: NodeRecord, devices: tuple[Device, ...]) -> None:
        """Write the shared devices of one node. Its free GPUs have to be right before."""
        had, self.devices[column] = self.devices[column], devices
        if not devices:  # of most nodes, each time that one is counted
            self._put_none(column, node, has_open=bool(had))
            return
        self._ensure_slots(len(devices))
        self._close(column)
        for slot, dev in enumerate(devices):
            self._put_slot(column, slot, node, dev)
        self.extra[:, column] = (
            self._left_milli(column),
            sum(dev.is_idle for dev in devices if dev.is_gpu),
            sum(dev.is_leaving for dev in devices if dev.is_gpu),
            node.largest_card_mib,
            node.is_mig,
            node.is_multiplied,
            sum(dev.is_contended for dev in devices),
            sum(dev.is_silent for dev in devices),
            sum(dev.is_ill for dev in devices),
        )

    def _put_none(self, column: int, node: NodeRecord, *, has_open: bool) -> None:
        """Write that a node has no shared devices. ``has_open``: whether slots are open of those that it had."""
        if has_open:
            self._close(column)
        left = self._left_milli(column)
        self.extra[:, column] = (left, 0, 0, node.largest_card_mib, node.is_mig, node.is_multiplied, 0, 0, 0)

    def put_device(self, column: int, slot: int, node: NodeRecord, dev: Device) -> None:
        """Write one device of a node, or a new one behind the last. Its free GPUs have to be right before."""
        devices = self.devices[column]
        old = devices[slot] if slot < len(devices) else None
        self.devices[column] = (*devices[:slot], dev, *devices[slot + 1 :])
        self._ensure_slots(slot + 1)
        self._put_slot(column, slot, node, dev)
        if old is not None and old.is_gpu and (old.is_idle or old.is_leaving):
            self.extra[IDLE, column] += dev.is_idle - old.is_idle
            self.extra[LEAVING, column] += dev.is_leaving - old.is_leaving
        if old is not None and dev.is_silent != old.is_silent:
            self.extra[SILENT_DEVICES, column] += dev.is_silent - old.is_silent
        self.put_left(column)

    def put_left(self, column: int) -> None:
        """Write what is left of a node's GPUs after its free GPUs changed."""
        self.extra[LEFT_MILLI, column] = self._left_milli(column)

    def _put_slot(self, column: int, slot: int, node: NodeRecord, dev: Device) -> None:
        takes = dev.is_open and dev.is_gpu and not node.refuses_shares
        self.share_nano[slot, column] = dev.free_nano if takes else CLOSED
        largest = largest_ask_mib(dev, node.smallest_card_mib, node.largest_card_mib) if takes else CLOSED
        self.share_mib[slot, column] = largest
        if not dev.is_gpu or node.is_mig:
            self._put_slice(column, slot, dev)

    def _put_slice(self, column: int, slot: int, dev: Device) -> None:
        missing = slot + 1 - len(self.slice_nano)
        if missing > 0:
            self.slice_nano = _with_rows(self.slice_nano, missing, CLOSED)
            self.slice_row = _with_rows(self.slice_row, missing, CLOSED)
        is_known = dev.resource in self.resources
        self.slice_nano[slot, column] = dev.free_nano if dev.is_open else CLOSED
        self.slice_row[slot, column] = self.resources.index(dev.resource) if is_known else _NOBODYS

    def _close(self, column: int) -> None:
        """Let nobody into any slot."""
        for array in (self.share_nano, self.share_mib, self.slice_nano, self.slice_row):
            array[:, column] = CLOSED

    def _left_milli(self, column: int) -> int:
        whole = max(0, int(self.free[GPUS, column])) * MILLI_PER_GPU
        shared = sum(dev.free_nano for dev in self.devices[column] if dev.is_gpu) // _NANO_PER_MILLI
        return min(whole + shared, (1 << LEFT_BITS) - 1)

    def clear(self, column: int) -> None:
        """Empty the column of a node that is gone."""
        for array in (self.free, self.total, self.extra):
            array[:, column] = 0
        self._close(column)
        self.devices[column] = ()

    def add_columns(self, more: int) -> None:
        """Make room for more nodes."""
        self.devices += [()] * more
        self.free = _with_columns(self.free, more, 0)
        self.total = _with_columns(self.total, more, 0)
        self.extra = _with_columns(self.extra, more, 0)
        self.share_nano = _with_columns(self.share_nano, more, CLOSED)
        self.share_mib = _with_columns(self.share_mib, more, CLOSED)
        self.slice_nano = _with_columns(self.slice_nano, more, CLOSED)
        self.slice_row = _with_columns(self.slice_row, more, CLOSED)

    def add_resource(self, resource: str) -> None:
        """Make room for a resource that no node had so far."""
        if resource not in self.resources:
            self.resources.append(resource)
            self.free = _with_rows(self.free, 1, 0)
            self.total = _with_rows(self.total, 1, 0)

    def _ensure_slots(self, slots: int) -> None:
        missing = slots - len(self.share_nano)
        if missing > 0:
            self.share_nano = _with_rows(self.share_nano, missing, CLOSED)
            self.share_mib = _with_rows(self.share_mib, missing, CLOSED)


def _with_rows(table: Int64s, rows: int, value: int) -> Int64s:
    return np.concatenate([table, np.full((rows, table.shape[1]), value, np.int64)], axis=0)


def _with_columns(table: Int64s, columns: int, value: int) -> Int64s:
    return np.concatenate([table, np.full((table.shape[0], columns), value, np.int64)], axis=1)
