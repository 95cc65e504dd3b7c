"""What pods count for in their queues, summed by the queue's name.

Each pod has one row, counted anew from what is known of it whenever something about it changes; the sums take the
difference to the row before. So events that are late, repeated or in another order can't add up to a wrong sum: what is
subtracted is what the table holds (batch.md 3.2, invariant S12).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from scheduler.core.model.resources import NOTHING, Resources


class Stage(enum.Enum):
    """How far a pod is."""

    #: It waits for a place.
    WAITING = "waiting"
    #: It has one, or is on its way there.
    HELD = "held"
    #: It has one and is terminating: it counts against limits until it is gone.
    LEAVING = "leaving"


class Row(msgspec.Struct, frozen=True, gc=False):
    """One pod's. ``is_fixed``: it can't be preempted."""

    queue: str
    amounts: Resources
    stage: Stage
    is_fixed: bool = False


class Sum(msgspec.Struct, gc=False):
    """Of all pods of one queue: as in ``Account``."""

    held: Resources = NOTHING
    fixed: Resources = NOTHING
    kept: Resources = NOTHING
    asked: Resources = NOTHING
    pods: int = 0


_MINUS: Final = -1


class QueueSums:
    """Rows by pod UID, and their sums by queue name. ``version`` grows with every change."""

    __slots__ = ("_rows", "_sums", "version")

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._sums: dict[str, Sum] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def sums(self) -> Mapping[str, Sum]:
        """By name of the queue; of queues that have no pods there are none."""
        return self._sums

    def put(self, uid: str, row: Row | None) -> None:
        """Take a pod's row as it is now; None: it counts for nothing."""
        before = self._rows.get(uid)
        if before == row:
            return
        self.version += 1
        if before is not None:
            self._count(before, _MINUS)
            del self._rows[uid]
        if row is not None:
            self._rows[uid] = row
            self._count(row, 1)

    def _count(self, row: Row, sign: int) -> None:
        total = self._sums.setdefault(row.queue, Sum())
        add_to(total, row, sign)
        if not total.pods:
            del self._sums[row.queue]

    def differences(self, rows: Mapping[str, Row]) -> list[str]:
        """Say where rows or sums differ from these rows, which are all that there should be (invariant S12)."""
        problems = [
            f"pod {uid} counts in its queue as {self._rows.get(uid)}, not as {rows.get(uid)}"
            for uid in sorted(self._rows.keys() | rows.keys())
            if self._rows.get(uid) != rows.get(uid)
        ]
        counted = summed(rows.values())
        problems += [
            f"queue {name!r} sums up to {self._sums.get(name)}, not to {counted.get(name)}"
            for name in sorted(self._sums.keys() | counted.keys())
            if self._sums.get(name) != counted.get(name)
        ]
        return problems


def add_to(total: Sum, row: Row, sign: int) -> None:
    """Add a row, or take it away with ``sign`` -1."""
    amounts = row.amounts if sign > 0 else NOTHING.minus(row.amounts)
    total.pods += sign
    if row.stage is not Stage.LEAVING:
        total.asked = total.asked.plus(amounts)
    if row.stage is Stage.WAITING:
        return
    total.held = total.held.plus(amounts)
    if row.is_fixed:
        total.fixed = total.fixed.plus(amounts)
    if row.stage is Stage.HELD:
        total.kept = total.kept.plus(amounts)


def summed(rows: Iterable[Row]) -> dict[str, Sum]:
    """The sums of rows, by queue."""
    sums: dict[str, Sum] = {}
    for row in rows:
        add_to(sums.setdefault(row.queue, Sum()), row, 1)
    return sums
