"""The tree of queues, and what pods count for in them, summed by the queue's name and by PodGroup."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import msgspec

from scheduler.core.model.facts import copied
from scheduler.core.model.quota import NOTHING, WITHOUT_END, BadField, QueueRecord, Resources
from scheduler.core.model.verdict import Code, QueueCause, Verdict

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

    A pod's row is counted again from what is known of it whenever something about it changes; the sums take the
    difference to the row before. So events that are late, repeated or in another order can't add up to a wrong sum:
    what is subtracted is what the table holds (invariant S12).
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


#: A chain of parents longer than this is refused: the work for each pod that is placed grows with it.
DEEPEST: Final = 32
#: What a verdict names while Queues can't be read.
_KIND: Final = "queues.scheduling.run.ai"
#: Number of the virtual queue above all others.
_TOP: Final = -1

#: The queue of all pods where there is no Queue object. Objects can't have this name.
_ONLY: Final = QueueRecord(name="", quota=WITHOUT_END)


_NOWHERE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Node pools of queues of others, by name, and the pool that looks for one."""

    pools: Mapping[str, str]
    here: str

    def cause(self, name: str) -> QueueCause | None:
        """Which pool a queue that is not here belongs to; None: there is no such queue."""
        pool = self.pools.get(name)
        return None if pool is None else QueueCause(at=name, pool=pool, here=self.here)


@dataclass(frozen=True, slots=True)
class TreeQueue:
    """A queue in its place. ``path``: its number and those of all queues above it, itself first.

    ``parent`` is -1 at the top. ``children``: numbers, in the order of names.
    """

    record: QueueRecord
    number: int
    parent: int
    path: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.record.name


class Tree:
    """All queues that can be used, numbered so that parents come before their children.

    It is made of the records of queues whenever one changes, and never changes in place. Queues that can't be used are
    kept beside it, each with the link that is broken: their pods wait, and what runs goes on (docs/design/queues.md).
    Without any Queue object there is one queue that takes all pods and limits nothing (``is_implied``).

    ``top``: numbers of queues without a parent. ``is_read``: Queue objects can be read; as long as they never were,
    nobody knows what they limit, and all pods wait. ``elsewhere``: node pools of queues of others, by name; ``here``:
    the node pool whose queues these are.
    """

    __slots__ = ("_elsewhere", "_number_of", "_unread", "broken", "is_implied", "queues", "top")

    def __init__(
        self,
        records: Iterable[QueueRecord] = (),
        *,
        is_read: bool = True,
        elsewhere: Mapping[str, str] = _NOWHERE,
        here: str = "",
    ) -> None:
        self._elsewhere = _Elsewhere(elsewhere, here)
        self._unread = None if is_read else Verdict(code=Code.NOT_READ, detail=_KIND)
        by_name = {record.name: record for record in sorted(records, key=lambda record: record.name)}
        self.is_implied = not by_name
        if not by_name:
            by_name = {_ONLY.name: _ONLY}
        chains = {name: _chain(name, by_name, self._elsewhere) for name in by_name}
        #: Queues that can't be used, by name, and why.
        self.broken = {name: chain for name, chain in chains.items() if isinstance(chain, Verdict)}
        sound = sorted((len(chain), name) for name, chain in chains.items() if not isinstance(chain, Verdict))
        self._number_of = {name: number for number, (_, name) in enumerate(sound)}
        below: dict[int, list[int]] = {}
        for name, number in self._number_of.items():
            below.setdefault(self._parent_of(by_name[name]), []).append(number)
        queues: list[TreeQueue] = []
        for name, number in self._number_of.items():
            parent = self._parent_of(by_name[name])
            path = (number, *(queues[parent].path if parent != _TOP else ()))
            queues.append(TreeQueue(by_name[name], number, parent, path, tuple(below.get(number, ()))))
        self.queues = tuple(queues)
        self.top = tuple(below.get(_TOP, ()))

    @property
    def limits_nothing(self) -> bool:
        """Whether there are no queues, so that all pods may use everything."""
        return self.is_implied and self._unread is None

    def _parent_of(self, record: QueueRecord) -> int:
        return self._number_of[record.parent] if record.parent else _TOP

    def find(self, name: str) -> TreeQueue | None:
        """The queue of this name, if it can be used; any name means the one queue where there are no objects."""
        number = 0 if self.is_implied else self._number_of.get(name)
        return None if number is None else self.queues[number]

    def leaf(self, name: str) -> TreeQueue | Verdict:
        """The queue in which pods of this queue wait, or why they can't be placed in it."""
        if self._unread is not None:
            return self._unread
        found = self.find(name)
        if found is None:
            missing = Verdict(code=Code.QUEUE_NOT_FOUND, detail=name, queue=self._elsewhere.cause(name))
            return self.broken.get(name) or missing
        if found.children:
            return Verdict(code=Code.QUEUE_NOT_LEAF, detail=name)
        return found


def _chain(name: str, by_name: dict[str, QueueRecord], elsewhere: _Elsewhere) -> tuple[str, ...] | Verdict:
    """Names from a queue up to the top, or what is wrong on the way."""
    seen: dict[str, None] = {}
    at = name
    while True:
        record = by_name.get(at)
        if record is None:
            return Verdict(
                code=Code.QUEUE_PARENT_NOT_FOUND, detail=name, queue=elsewhere.cause(at) or QueueCause(at=at)
            )
        if record.bad is not None:
            return Verdict(code=Code.QUEUE_CLOSED, detail=name, queue=_closed(at, record.bad))
        if at in seen:
            return Verdict(code=Code.QUEUE_CYCLE, detail=name, queue=QueueCause(at=at))
        seen[at] = None
        if len(seen) > DEEPEST:
            return Verdict(code=Code.QUEUE_TOO_DEEP, detail=name, required=DEEPEST)
        if not record.parent:
            return tuple(seen)
        at = record.parent


def _closed(name: str, bad: BadField) -> QueueCause:
    return QueueCause(at=name, field=bad.field, value=bad.value)
