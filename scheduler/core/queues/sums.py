"""What pods count for in their queues, summed by the queue's name, and by PodGroup.

Each pod has one row, counted again from what is known of it whenever something about it changes; the sums take the
difference to the row before. So events that are late, repeated or in another order can't add up to a wrong sum: what is
subtracted is what the table holds (docs/design/queues.md, invariant S12).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from copy import copy
from typing import Final, Self, TypeVar

import msgspec

from scheduler.core.model.facts import copied
from scheduler.core.model.quota import NOTHING, Resources

#: A PodGroup's namespace and name.
Group = tuple[str, str]
K = TypeVar("K", bound=Hashable)


class Stage(enum.Enum):
    """How far a pod is."""

    #: It waits for a place.
    WAITING = "waiting"
    #: It has one, or is on its way there.
    HELD = "held"
    #: It has one and is terminating, or has to go for others: it counts against limits until it is gone.
    LEAVING = "leaving"


class Row(msgspec.Struct, frozen=True, gc=False):
    """One pod's. ``is_fixed``: it can't be preempted. ``group``: its PodGroup, by namespace and name."""

    queue: str
    amounts: Resources
    stage: Stage
    is_fixed: bool = False
    group: Group | None = None


class Sum(msgspec.Struct, gc=False):
    """Of all pods of one queue, or of one PodGroup: as in ``Account``."""

    held: Resources = NOTHING
    fixed: Resources = NOTHING
    kept: Resources = NOTHING
    asked: Resources = NOTHING
    pods: int = 0


_MINUS: Final = -1


class QueueSums:
    """Rows by pod UID, and their sums by queue name and by PodGroup. ``version`` grows with every change.

    ``on_group`` is called with each PodGroup whose sum has changed.
    """

    __slots__ = ("_by_group", "_rows", "_sums", "on_group", "version")

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._sums: dict[str, Sum] = {}
        self._by_group: dict[Group, Sum] = {}
        self.version = 0
        self.on_group: Callable[[Group], None] = _ignore

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def sums(self) -> Mapping[str, Sum]:
        """By name of the queue; of queues that have no pods there are none."""
        return self._sums

    def row(self, uid: str) -> Row | None:
        """As what a pod counts; None: it counts for nothing."""
        return self._rows.get(uid)

    def of_group(self, group: Group) -> Sum | None:
        """The sum of one PodGroup's pods; None if it has none that count."""
        return self._by_group.get(group)

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
        for group in dict.fromkeys(each.group for each in (before, row) if each is not None):
            if group is not None:
                self.on_group(group)

    def changed(self, rows: Mapping[str, Row | None]) -> Self:
        """Sums of their own in which these pods (UIDs) have other rows; None: they count for nothing."""
        made = copied(
            self,
            _rows=dict(self._rows),
            _sums={name: copy(total) for name, total in self._sums.items()},
            _by_group=self._groups_for(rows),
            on_group=_ignore,
        )
        for uid, row in rows.items():
            made.put(uid, row)
        return made

    def _groups_for(self, rows: Mapping[str, Row | None]) -> dict[Group, Sum]:
        """Sums of PodGroups, of which those that other rows change are copies."""
        pairs = ((self._rows.get(uid), row) for uid, row in rows.items())
        groups = {each.group for pair in pairs for each in pair if each is not None and each.group is not None}
        found = dict(self._by_group)
        found.update((group, copy(found[group])) for group in groups & found.keys())
        return found

    def _count(self, row: Row, sign: int) -> None:
        _add(self._sums, row.queue, row, sign)
        if row.group is not None:
            _add(self._by_group, row.group, row, sign)

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
        of_groups = summed_by_group(rows.values())
        problems += [
            f"PodGroup {group} sums up to {self._by_group.get(group)}, not to {of_groups.get(group)}"
            for group in sorted(self._by_group.keys() | of_groups.keys())
            if self._by_group.get(group) != of_groups.get(group)
        ]
        return problems


def _ignore(_: Group) -> None:
    return


def _add(sums: dict[K, Sum], key: K, row: Row, sign: int) -> None:
    """Add a row to the sum of a key, or take it away; a sum of no pods is none."""
    total = sums.setdefault(key, Sum())
    add_to(total, row, sign)
    if not total.pods:
        del sums[key]


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
        _add(sums, row.queue, row, 1)
    return sums


def summed_by_group(rows: Iterable[Row]) -> dict[Group, Sum]:
    """The sums of rows, by PodGroup."""
    sums: dict[Group, Sum] = {}
    for row in rows:
        if row.group is not None:
            _add(sums, row.group, row, 1)
    return sums
