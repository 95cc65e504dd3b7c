"""What a score is: an object that says which of the nodes that fit comes first, and which of their devices.

A score is one file and its test, and one line of the registry (registry.py). It has no state. It sees the table of
nodes through ``Look`` and gives one int64 a node, from 0 to below ``KEY_END``; smaller comes first. What comes before
every score (a node that owes an answer, nodes without GPUs first for pods without GPUs) is the ranking's (ranking.py),
which writes it above ``KEY_BITS``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

import numpy as np

from scheduler.core.devices.device_fit import DeviceOrder, Pool
from scheduler.core.model.pod_class import Demand
from scheduler.core.nodes.table import Int64s, Selection, Table

#: The bits of a key: nano-GPU of 127 devices, and what is left of a node's GPUs in milli-GPU beside it.
KEY_BITS: Final = 57
KEY_END: Final = 1 << KEY_BITS
#: A share of something counts in parts of this, rounded down.
PARTS: Final = 1 << 20

#: Of a class that asks for nothing beside shares.
NO_DEMAND: Final = Demand()
_NO_DEVICES: Final = np.zeros(0, np.int64)


class Wanted(enum.Enum):
    """What a class asks for, of which a score makes its key."""

    SHARES = enum.auto()
    GPUS = enum.auto()
    CPU = enum.auto()


class Look:
    """The table over the nodes that are ranked.

    ``free``: ``[resource, node]``. ``pools``: the shares that are asked, by the kind of device. ``opened`` and
    ``tightest``, where shares are asked: how many devices have to be opened at each node, and the nano-GPU free on the
    tightest ones that fit (device_fit.py). ``demand``: what the class asks beside shares.
    """

    __slots__ = ("demand", "free", "opened", "pools", "selection", "table", "tightest", "wanted")

    def __init__(
        self,
        table: Table,
        selection: Selection,
        wanted: Wanted,
        pools: tuple[Pool, ...],
        *,
        demand: Demand = NO_DEMAND,
    ) -> None:
        self.demand = demand
        self.table = table
        self.selection = selection
        self.wanted = wanted
        self.pools = pools
        self.free = table.free[:, selection]
        self.opened = self.tightest = _NO_DEVICES

    def total(self, row: int) -> Int64s:
        """What the nodes have of a resource."""
        return self.table.total[row, self.selection]

    def fact(self, row: int) -> Int64s:
        """One of the table's extra rows."""
        return self.table.extra[row, self.selection]


class Score(DeviceOrder, Protocol):
    """An order of nodes and of devices.

    ``opens_last``: nodes where fewer devices have to be opened come first, before any key.
    """

    @property
    def name(self) -> str:
        """The name by which settings choose it."""
        ...

    @property
    def opens_last(self) -> bool:
        """Whether nodes where fewer devices have to be opened come first."""
        ...

    def keys(self, look: Look) -> Int64s:
        """One number for each node of ``look``, smaller first, from 0 to below ``KEY_END``, in a new array."""
        ...


#: Scores by name.
Scores: TypeAlias = Mapping[str, Score]
