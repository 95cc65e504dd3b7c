"""Which nodes changed, and where a change may help a pod that fitted nowhere before.

Every change of a node has a number. A node that only lost something can't help anybody.
"""

from __future__ import annotations

import numpy as np

from scheduler.core.nodes.table import Device, Int64s


class Changes:
    """By row of the ledger. ``last``: the number of the last change of any node."""

    __slots__ = ("_changed_at", "_helped_at", "_helped_since", "_last_help", "last")

    def __init__(self) -> None:
        self.last = 0
        self._last_help = 0
        self._helped_at: Int64s = np.zeros(0, np.int64)
        self._changed_at: Int64s = np.zeros(0, np.int64)
        #: Answers of ``helped_since``, until the next change.
        self._helped_since: dict[int, list[int]] = {}

    def grow(self, rows: int) -> None:
        """Make room for a number of rows in all."""
        more: Int64s = np.zeros(rows - len(self._helped_at), np.int64)
        self._helped_at = np.concatenate([self._helped_at, more])
        self._changed_at = np.concatenate([self._changed_at, more])

    def note(self, row: int, *, may_help: bool) -> None:
        """A node changed."""
        self.last += 1
        self._changed_at[row] = self.last
        if may_help:
            self._helped_at[row] = self._last_help = self.last
            self._helped_since.clear()

    def changed_since(self, number: int) -> list[int]:
        """Rows of the nodes that changed after ``number`` in any way."""
        return [] if self.last <= number else np.flatnonzero(self._changed_at > number).tolist()

    def has_helped_since(self, number: int) -> bool:
        """Whether any node changed after ``number`` in a way that may help."""
        return self._last_help > number

    def helped_since(self, number: int) -> list[int]:
        """Rows of the nodes that changed after ``number`` in a way that may help."""
        known = self._helped_since.get(number)
        if known is None:
            known = self._helped_since[number] = np.flatnonzero(self._helped_at > number).tolist()
        return known


def may_take_more(before: tuple[Device, ...], now: tuple[Device, ...]) -> bool:
    """Whether the shared devices of a node may take a pod now that they did not take before."""
    if before is now:
        return False
    known = {device.group: device for device in before}
    return any(_is_better(known.get(device.group), device) for device in now)


def _is_better(before: Device | None, now: Device) -> bool:
    if before is None:
        return now.is_open or now.is_idle or now.is_leaving
    return (
        (now.is_open and not before.is_open)
        or (now.is_idle and not before.is_idle)
        or (now.is_leaving and not before.is_leaving)
        or (now.is_answered and not before.is_answered)
        or now.free_nano > before.free_nano
        or now.free_compute_percent > before.free_compute_percent
        or before.modes not in {(), now.modes}
        or (now.card_mib, now.resource) != (before.card_mib, before.resource)
    )
