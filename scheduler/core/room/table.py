"""All units as arrays, one row each, kept from events: a search looks at them in a few steps along memory.

Groups that something has happened to are marked, and read again before the next search (as queues count pods, sums.py).
So is a pod that another intent takes, or takes no more. Rows of what is gone are empty until they are used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Set
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.copying import copied
from scheduler.core.model.records import Demand, PodRecord
from scheduler.core.model.resources import Resources
from scheduler.core.model.room import Kept
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.queues.tree import Tree
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Reader, Resident, Residents
from wire import rfc3339

#: Namespace and PodGroup, and "" or the UID of a pod without one.
Key = tuple[str, str, str]
_FEWEST: Final = 16
_S: Final = 1_000_000_000
#: Columns say no more than this of what a unit holds, so that sums of thousands fit into 64 bits: a million GPUs, or a
#: PiB. A pod that names its node itself may ask what no node has. The rules go by exact amounts (``Resident``).
MOST: Final = 1 << 50
#: In a row that is empty.
EMPTY: Final = -1
#: Fields of a unit, and of a pod of one.
_UNIT: Final = (
    *("leaf", "priority", "is_core", "started_s", "core", "owner"),
    *("created_s", "uid", "place", "cpu", "mem", "gpu"),
)
_POD: Final = ("unit", "node", "demand", "is_special", "cpu", "gpu")


def key_of(pod: PodRecord) -> Key:
    """Of which group a pod is."""
    return pod.namespace, pod.pod_group, "" if pod.pod_group else pod.uid


class KeptKey(NamedTuple):
    """Why pods of a queue can't go for any need."""

    why: Kept
    leaf: int


_NOTHING: Final[Mapping[KeptKey, tuple[int, int]]] = {}


class _Rows(NamedTuple):
    """Of one group. ``kept``: pods and nano that can't go, by why."""

    units: tuple[int, ...]
    pods: tuple[int, ...]
    kept: Mapping[KeptKey, tuple[int, int]]


class Columns:
    """Arrays of equal length that grow, and which of their rows are empty."""

    def __init__(self, names: Iterable[str]) -> None:
        self.of: dict[str, Int64s] = {name: np.full(_FEWEST, EMPTY, np.int64) for name in names}
        self._free = list(range(_FEWEST))[::-1]

    def put(self, **values: int) -> int:
        """Fill a row; return its number."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        for name, value in values.items():
            self.of[name][row] = value
        return row

    def copy(self) -> Columns:
        """The same rows, to be changed by themselves."""
        of = {name: column.copy() for name, column in self.of.items()}
        return copied(self, of=of, _free=list(self._free))

    def drop(self, row: int) -> None:
        """Empty a row."""
        for column in self.of.values():
            column[row] = EMPTY
        self._free.append(row)

    def _grow(self) -> None:
        length = len(next(iter(self.of.values())))
        more = np.full(length, EMPTY, np.int64)
        self.of = {name: np.concatenate([column, more]) for name, column in self.of.items()}
        self._free = list(range(length, 2 * length))[::-1]


class ResidentTable:
    """``mark`` notes that something about a group has changed; ``refresh`` reads it again."""

    def __init__(self) -> None:
        self._rows: dict[Key, _Rows] = {}
        #: None: all are read again.
        self._marked: set[Key] | None = None
        self._tree: Tree | None = None
        self._taken: Set[str] = frozenset()
        self._leaving: Set[str] = frozenset()
        self.units = Columns(_UNIT)
        self.pods = Columns(_POD)
        self.residents: list[Resident | None] = []
        self.kept: Counter[KeptKey] = Counter()
        self.kept_nano: Counter[KeptKey] = Counter()
        self._surplus: dict[int, tuple[int, ...]] = {}
        #: Rows of units by the UIDs of their pods.
        self.row_of: dict[str, int] = {}
        self._demands: dict[Demand, int] = {}
        self._amounts: dict[Resources, Resources] = {}
        self._nodes: dict[str, int] = {}
        self._positions: tuple[Mapping[str, int], int, Int64s] | None = None

    def copy(self) -> ResidentTable:
        """The same units in a table of its own."""
        return copied(
            self,
            _rows=dict(self._rows),
            _marked=None if self._marked is None else set(self._marked),
            units=self.units.copy(),
            pods=self.pods.copy(),
            residents=list(self.residents),
            kept=self.kept.copy(),
            kept_nano=self.kept_nano.copy(),
            _surplus=dict(self._surplus),
            row_of=dict(self.row_of),
            _demands=dict(self._demands),
            _amounts=dict(self._amounts),
            _nodes=dict(self._nodes),
        )

    # --- what is seen ------------------------------------------------------------------------------------------------
    def mark(self, pod: PodRecord) -> None:
        """Something about a pod has changed."""
        self.mark_group(key_of(pod))

    def mark_group(self, key: Key) -> None:
        """Something about a group has changed."""
        if self._marked is not None:
            self._marked.add(key)
            if len(self._marked) > 2 * len(self._rows) + _FEWEST:
                self._marked = None

    # --- what searches read ------------------------------------------------------------------------------------------
    def refresh(self, trial: Trial) -> None:
        """Read again what has changed since."""
        taken, leaving, tree = frozenset(trial.taken), frozenset(trial.leaving), trial.accounts.tree
        many = 2 * len(self.residents) + _FEWEST
        is_moved = tree is not self._tree and (self._tree is None or _places(tree) != _places(self._tree))
        is_crowded = max(len(self._demands), len(self._amounts), len(self._nodes)) > many
        if self._marked is None or is_moved or is_crowded:
            self._clear()
            marked = {key_of(pod) for pod in trial.pods.records.values() if pod.node and pod.queue}
        else:
            moved = map(trial.pods.records.get, (taken ^ self._taken) | (leaving ^ self._leaving))
            marked = self._marked | {key_of(pod) for pod in moved if pod is not None}
        self._marked, self._tree, self._taken, self._leaving = set(), tree, taken, leaving
        for key in sorted(marked):
            self._read(key, trial)

    def _clear(self) -> None:
        self._rows.clear()
        self.units, self.pods = Columns(_UNIT), Columns(_POD)
        self.residents, self._surplus, self.row_of = [], {}, {}
        self.kept, self.kept_nano = Counter(), Counter()
        self._demands, self._nodes, self._positions, self._amounts = {}, {}, None, {}

    def _read(self, key: Key, trial: Trial) -> None:
        self._drop(key)
        namespace, name, uid = key
        if name:
            pods = trial.pods.members(namespace, name)
        else:
            found = trial.pods.records.get(uid)
            pods = [found] if found is not None and not found.pod_group else []
        there = [pod for pod in pods if pod.node and pod.queue]
        if not there:
            return
        reader = Reader(trial, known=self._amounts)
        group = trial.pod_groups.get((namespace, name)) if name else None
        if group is not None:
            reader.read(there, group)
        else:
            for pod in there:
                reader.read([pod], None)
        self._put(key, reader.found)

    def _put(self, key: Key, found: Residents) -> None:
        of: dict[Resident, int] = {}
        pods = list[int]()
        for unit in found.units:
            of[unit] = self._put_unit(unit, pods, len(of))
        for unit in found.units:
            if unit.chain:
                self._surplus[of[unit]] = tuple(of[surplus] for surplus in unit.chain)
                for surplus in unit.chain:
                    self.units.of["core"][of[surplus]] = of[unit]
        kept: dict[KeptKey, tuple[int, int]] = {}
        for why, leaf, _, amounts in found.kept:
            count, nano = kept.get(KeptKey(why, leaf.number), (0, 0))
            kept[KeptKey(why, leaf.number)] = count + 1, nano + amounts.gpu_nano
        for each, (count, nano) in kept.items():
            self.kept[each] += count
            self.kept_nano[each] += nano
        self._rows[key] = _Rows(tuple(of.values()), tuple(pods), kept or _NOTHING)

    def _put_unit(self, unit: Resident, pods: list[int], place: int) -> int:
        cpu, mem, gpu = (min(amount, MOST) for amount in unit.amounts)
        row = self.units.put(
            leaf=unit.leaf.number,
            priority=unit.unit.priority,
            is_core=unit.is_core,
            started_s=unit.started_s,
            owner=hash(unit.owner),
            created_s=(rfc3339.parse_ns(unit.created) or 0) // _S,
            uid=int.from_bytes(unit.uid.encode()[:7].ljust(7, b"\0")),
            place=place,
            cpu=cpu,
            mem=mem,
            gpu=gpu,
        )
        while len(self.residents) <= row:
            self.residents.append(None)
        self.residents[row] = unit
        for pod in unit.pods:
            node = self._nodes.setdefault(pod.node, len(self._nodes))
            self.row_of[pod.uid] = row
            demand = self._demands.setdefault(pod.cls.demand, len(self._demands))
            pods.append(
                self.pods.put(
                    unit=row,
                    node=node,
                    demand=demand,
                    is_special=pod.has_legacy_slice,
                    cpu=min(pod.cls.demand.cpu_milli, MOST),
                    gpu=gpu // len(unit.pods),
                )
            )
        return row

    def _drop(self, key: Key) -> None:
        rows = self._rows.pop(key, None)
        if rows is None:
            return
        for row in rows.units:
            unit = self.residents[row]
            if unit is not None:
                for pod in unit.pods:
                    if self.row_of.get(pod.uid) == row:
                        del self.row_of[pod.uid]
            self.residents[row] = None
            self._surplus.pop(row, None)
            self.units.drop(row)
        for row in rows.pods:
            self.pods.drop(row)
        for kept, (count, nano) in rows.kept.items():
            self.kept[kept] -= count
            self.kept_nano[kept] -= nano

    # --- as a statement sees it --------------------------------------------------------------------------------------
    def positions(self, trial: Trial) -> Int64s:
        """The position of each pod's node in the statement; -1: it is not there."""
        position_of = trial.statement.position_of
        known = self._positions
        if known is None or known[0] is not position_of or known[1] != len(self._nodes):
            found = np.array([position_of.get(name, -1) for name in self._nodes] or [-1], np.int64)
            known = self._positions = position_of, len(self._nodes), found
        return known[2][self.pods.of["node"]]

    def demands(self, trial: Trial, rows: Iterable[int]) -> Int64s:
        """What each pod holds of these rows of its node."""
        wanted = list(rows)
        by_demand = [dict(trial.statement.amounts(demand)) for demand in self._demands]
        found = np.array([[each.get(row, 0) for row in wanted] for each in by_demand] or [[0] * len(wanted)], np.int64)
        held: Int64s = found[self.pods.of["demand"]].T
        return held

    def owned_by(self, owners: Collection[str]) -> list[int]:
        """Rows of units of these owners, by whom evictions are counted."""
        if not owners:
            return []
        alike = np.isin(self.units.of["owner"], np.array([hash(owner) for owner in owners], np.int64))
        rows = np.flatnonzero(alike & self.is_filled()).tolist()
        return [row for row in rows if (unit := self.residents[row]) is not None and unit.owner in owners]

    def at(self, rows: Iterable[int]) -> list[Resident]:
        """The units of these rows."""
        found = (self.residents[row] for row in rows)
        return [unit for unit in found if unit is not None]

    def surplus_of(self, core: int) -> tuple[int, ...]:
        """The rows of units that go with a core."""
        return self._surplus.get(core, ())

    def is_filled(self) -> Bools:
        """Which rows of units are."""
        filled: Bools = self.units.of["leaf"] != EMPTY
        return filled


def _places(tree: Tree) -> Hashable:
    """Where each queue stands, and which can't be used: what units are read by. Amounts of queues are none of it."""
    return tuple((queue.name, queue.path, queue.children) for queue in tree.queues), frozenset(tree.broken)
