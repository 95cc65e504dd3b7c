"""Shared devices and their tenants as a search sees them: the share of each on each, by the books of reservations.

Where a book says all that is charged on a device, what it has left without some tenants follows from the book. Nodes
where that is not so (a device without a reservation that answers, tenants that no book names, slices) are *odd*: the
statement counts them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.nodes.table import Bools, Device, Int64s
from scheduler.core.room.columns import EMPTY

if TYPE_CHECKING:
    from scheduler.core.room.table import ResidentTable
    from scheduler.core.room.trial import Trial


@dataclass(slots=True)
class SharedDevice:
    """``tenants``: rows of their units (EMPTY: of none) and what they have. ``is_open``: it takes new tenants."""

    position: int
    free_nano: int
    is_open: bool
    tenants: list[tuple[int, int]]

    def left_nano(self, gone: frozenset[int]) -> int:
        """What is free without the units of these rows."""
        return self.free_nano + sum(nano for row, nano in self.tenants if row in gone)

    def comes_back(self, gone: frozenset[int]) -> bool:
        """Whether it then can be given back as a whole."""
        return bool(self.tenants) and all(row in gone for row, _ in self.tenants)


@dataclass(slots=True)
class Tenants:
    """``odd``: nodes of which nothing is said here. Arrays: of each device, and of each tenant."""

    odd: Bools
    shared: Bools
    devices: list[SharedDevice] = field(default_factory=list)
    by_node: dict[int, list[SharedDevice]] = field(default_factory=dict)
    position: Int64s = field(init=False)
    free_nano: Int64s = field(init=False)
    is_open: Bools = field(init=False)
    of_device: Int64s = field(init=False)
    row: Int64s = field(init=False)
    nano: Int64s = field(init=False)

    def __post_init__(self) -> None:
        for device in self.devices:
            self.by_node.setdefault(device.position, []).append(device)
        self.position = np.array([device.position for device in self.devices], np.int64)
        self.free_nano = np.array([device.free_nano for device in self.devices], np.int64)
        self.is_open = np.array([device.is_open for device in self.devices], np.bool_)
        parts = [(at, *part) for at, device in enumerate(self.devices) for part in device.tenants]
        columns = np.array(parts, np.int64).reshape(-1, 3).T
        self.of_device, self.row, self.nano = columns[0], columns[1], columns[2]

    def without(self, gone: Bools) -> tuple[Int64s, Bools]:
        """What each device has left without units, and which of them then come back as a whole."""
        goes = (self.row != EMPTY) & gone[self.row]
        left = self.free_nano.copy()
        np.add.at(left, self.of_device[goes], self.nano[goes])
        stays = np.zeros(len(self.devices), np.int64)
        np.add.at(stays, self.of_device[~goes], 1)
        has = np.zeros(len(self.devices), np.bool_)
        has[self.of_device] = True
        return left, has & (stays == 0)


@dataclass(slots=True)
class TenantsRead:
    """Tenants as searches on one statement read them: again only once a change stands that did not, or units changed.

    A search leaves the statement as it was, and most find nobody: the next one would read the same.
    """

    _last: object | None = None
    _reads: int = -1
    _known: Tenants | None = None

    def of(self, trial: Trial, table: ResidentTable) -> Tenants:
        """The tenants of all devices."""
        if self._known is None or self._last is not trial.statement.last or self._reads != table.reads:
            self._last, self._reads = trial.statement.last, table.reads
            self._known = tenants(trial, table)
        return self._known


def tenants(trial: Trial, table: ResidentTable) -> Tenants:
    """Read the devices of all nodes."""
    statement = trial.statement
    odd = np.zeros(len(statement.nodes), np.bool_)
    positions = table.positions(trial)
    legacy = (table.pods.of["is_special"] == 1) & (positions >= 0)
    odd[positions[legacy]] = True
    shared, found = np.zeros_like(odd), list[SharedDevice]()
    for position, devices in enumerate(statement.table.devices):
        if not devices or odd[position]:
            continue
        shared[position] = True
        here = list(_read(position, devices, table, is_open=not statement.nodes[position].refuses_shares))
        if len(here) == len(devices):
            found += here
        else:
            odd[position] = True
    return Tenants(odd, shared & ~odd, found)


def _read(position: int, devices: tuple[Device, ...], table: ResidentTable, *, is_open: bool) -> Iterator[SharedDevice]:
    """Those of one node of which the book says all. ``is_open``: it takes shares."""
    for device in devices:
        held = device.reservation
        if held is None or held.book is None or device.is_contended or not device.is_gpu:
            return
        if not (held.is_joinable and held.is_told and device.is_open):
            return
        parts = [(table.row_of.get(uid, EMPTY), entry.nano) for uid, entry in held.book.entries.items()]
        if NANO_PER_DEVICE - sum(nano for _, nano in parts) != device.free_nano:
            return
        yield SharedDevice(position, device.free_nano, is_open, parts)
