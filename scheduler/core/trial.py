"""A working copy of the ledger in node-name order, on which one decision charges its own choices before the next.

Positions are nodes in name order, so that the first of equals is the one with the smallest name. Every charge is
written down and can be taken back, which is how a gang that doesn't fit leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.ledger import Ledger
from scheduler.core.records import Constraints, Demand, NodeRecord
from scheduler.core.settings import Settings
from scheduler.core.table import CPU, GPUS, MEMORY, PODS, Device, Int8s, Int64s


class OverCommitted(Exception):
    """Raised when a choice would charge a node or a device more than it has: a bug of whoever chose (field.md R5)."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """A share of one device of a node. ``slot`` None: a device that is not shared yet, under a new ``group``."""

    slot: int | None
    group: str
    nano: int


@dataclass(slots=True)
class _Charged:
    """What one charge changed, to take it back."""

    position: int
    amounts: Int64s
    devices: tuple[Device, ...]


class Trial:
    """A copy of the ledger's table in name order, and the charges made on it."""

    __slots__ = (
        "_journal",
        "_ledger",
        "_order",
        "_settings",
        "nodes",
        "position_of",
        "table",
        "touched",
    )

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        order = ledger.order()
        self._ledger = ledger
        self._order = order
        self._settings = settings
        self._journal: list[_Charged] = []
        rows = order.tolist()
        nodes = [ledger.nodes[row] for row in rows]
        self.nodes: list[NodeRecord] = [node for node in nodes if node is not None]
        self.position_of = {node.name: position for position, node in enumerate(self.nodes)}
        self.table = ledger.table.taken(order)
        #: Positions that were charged or taken back, in order: what a ranking has to look at again.
        self.touched: list[int] = []

    def eligible(self, constraints: Constraints) -> Int8s:
        """Judgement of every position for these constraints."""
        return self._ledger.eligible(constraints)[self._order]

    def amounts(self, demand: Demand) -> Int64s:
        """One pod's demand per resource, its pod slot included."""
        return self._ledger.amounts(demand, pods=1)

    def charge(self, position: int, demand: Demand, parts: tuple[Part, ...] = (), *, owed_gpus: int = 0) -> None:
        """Charge a pod; ``owed_gpus`` whole devices of its demand are still on their way back.

        Raises OverCommitted.
        """
        amounts = self.amounts(demand)
        opened = sum(part.slot is None for part in parts)
        amounts[PODS] += opened
        amounts[GPUS] += opened
        amounts[CPU] += opened * self._settings.reservation_cpu_milli
        amounts[MEMORY] += opened * self._settings.reservation_mem_mib
        left = self.table.free[:, position] - amounts
        left[GPUS] += owed_gpus
        if np.any((left < 0) & (amounts > 0)):
            raise OverCommitted(f"node {self.nodes[position].name}: {demand} and {opened} new devices leave {left}")
        self._journal.append(_Charged(position, amounts, self.table.devices[position]))
        self.table.free[:, position] -= amounts
        if parts:
            self._set_devices(position, _with_parts(self.table.devices[position], parts))
        self.touched.append(position)

    def retire(self, position: int, groups: frozenset[str]) -> None:
        """Give idle devices back on paper: closed to tenants, on their way to the device plugin."""
        devices = self.table.devices[position]
        self._journal.append(_Charged(position, np.zeros(len(self.table.resources), np.int64), devices))
        closed = tuple(
            msgspec.structs.replace(d, is_open=False, is_idle=False, is_leaving=True) if d.group in groups else d
            for d in devices
        )
        self._set_devices(position, closed)
        self.touched.append(position)

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back every charge since ``mark``."""
        while len(self._journal) > mark:
            charged = self._journal.pop()
            self.table.free[:, charged.position] += charged.amounts
            if charged.devices is not self.table.devices[charged.position]:
                self._set_devices(charged.position, charged.devices)
            self.touched.append(charged.position)

    def _set_devices(self, position: int, devices: tuple[Device, ...]) -> None:
        self.table.put_devices(position, self.nodes[position], devices)


def _with_parts(devices: tuple[Device, ...], parts: tuple[Part, ...]) -> tuple[Device, ...]:
    """Charge parts; a new group is added at the end."""
    charged = list(devices)
    for part in parts:
        if part.slot is None:
            dev = Device(group=part.group, free_nano=NANO_PER_DEVICE, card_mib=0, is_open=True)
            charged.append(dev)
            slot = len(charged) - 1
        else:
            slot = part.slot
        dev = charged[slot]
        left = dev.free_nano - part.nano
        if not dev.is_open or left < 0:
            raise OverCommitted(f"group {dev.group} (open: {dev.is_open}) would be left with {left} nano-GPU")
        charged[slot] = msgspec.structs.replace(dev, free_nano=left, is_idle=False, is_leaving=False)
    return tuple(charged)
