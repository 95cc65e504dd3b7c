"""All victim units as arrays, kept from events; and the tenants of shared devices, as a search sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.facts import copied
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Kept
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.table import Bools, Device, Int64s
from scheduler.core.preemption.victim_units import EMPTY, FEWEST, Columns, Reader, Resident, Residents, UnitSource
from scheduler.core.queues.tree import Tree
from wire import rfc3339
from wire.units import SECOND_NS

#: Namespace and PodGroup, and "" or the UID of a pod without one.
Key = tuple[str, str, str]
#: Columns say no more than this of what a unit holds, so that sums of thousands fit into 64 bits: a million GPUs, or a
#: PiB. A pod that names its node itself may ask what no node has. The rules go by exact amounts (``Resident``).
MOST: Final = 1 << 50
#: Fields of a unit, and of a pod of one, as narrow as they may be. ``first_pod``, ``next``: rows of pods of the unit,
#: and of units of the group, each of which leads to the next one.
_UNIT: Final[Mapping[str, type[np.signedinteger[Any]]]] = {
    **dict.fromkeys(("leaf", "core", "place", "first_pod", "next"), np.int32),
    **dict.fromkeys(("priority", "started_s", "owner", "created_s", "uid", "cpu", "mem", "gpu"), np.int64),
    "is_core": np.int8,
}
_POD: Final[Mapping[str, type[np.signedinteger[Any]]]] = {
    **dict.fromkeys(("unit", "node", "demand", "next"), np.int32),
    **dict.fromkeys(("cpu", "gpu"), np.int64),
    "is_special": np.int8,
}


def key_of(pod: PodRecord) -> Key:
    """Of which group a pod is."""
    return pod.namespace, pod.pod_group, "" if pod.pod_group else pod.uid


class KeptKey(NamedTuple):
    """Why pods of a queue can't go for any need."""

    why: Kept
    leaf: int


class ResidentTable:
    """Victim units, one row each: ``mark`` notes that something about a group has changed; ``refresh`` reads it again.

    That comes before the next search (as queues count pods, queues/tree.py). A pod that another nomination takes, or
    takes no more, is marked too. Rows of what is gone are empty until they are used again.
    """

    def __init__(self) -> None:
        #: The first unit of each group; of a pod without one, ``row_of`` has it. And pods that can't go, of those that
        #: have any: how many and their nano, by why.
        self._first: dict[Key, int] = {}
        self._kept: dict[Key, Mapping[KeptKey, tuple[int, int]]] = {}
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
        #: Rows of units that could be moved as a whole: successors of all their pods would be made.
        self.movable: dict[int, Resident] = {}
        self._demands: dict[Demand, int] = {}
        self._amounts: dict[Resources, Resources] = {}
        self._nodes: dict[str, int] = {}
        self._positions: tuple[Mapping[str, int], int, Int64s] | None = None
        #: How often something changed by which a pod may be evicted that was kept before, or the other way round.
        self.changes = 0
        #: How often rows came to hold another unit, or none.
        self.reads = 0

    def copy(self) -> ResidentTable:
        """The same units in a table of its own."""
        return copied(
            self,
            _first=dict(self._first),
            _kept=dict(self._kept),
            _marked=None if self._marked is None else set(self._marked),
            units=self.units.copy(),
            pods=self.pods.copy(),
            residents=list(self.residents),
            kept=self.kept.copy(),
            kept_nano=self.kept_nano.copy(),
            _surplus=dict(self._surplus),
            row_of=dict(self.row_of),
            movable=dict(self.movable),
            _demands=dict(self._demands),
            _amounts=dict(self._amounts),
            _nodes=dict(self._nodes),
        )

    # --- what is seen ------------------------------------------------------------------------------------------------
    def mark(self, pod: PodRecord) -> None:
        """Something about a pod has changed."""
        self.mark_group(key_of(pod))

    def changed(self, pod: PodRecord) -> None:
        """More than the version of a pod is another one: answers of searches may be, though no node has more room."""
        self.mark(pod)
        if pod.node and pod.queue:
            self.changes += 1

    def group_changed(self, key: Key) -> None:
        """A PodGroup is another one."""
        self.mark_group(key)
        self.changes += 1

    def mark_group(self, key: Key) -> None:
        """Something about a group has changed. What was read of it goes at once: perhaps no search follows."""
        if self._marked is None:
            return
        self._drop(key)
        self._marked.add(key)
        if len(self._marked) > 2 * len(self.row_of) + FEWEST:
            self._marked = None
            self._clear()

    # --- what searches read ------------------------------------------------------------------------------------------
    def refresh(self, trial: UnitSource) -> None:
        """Read again what has changed since."""
        taken, leaving, tree = frozenset(trial.taken), frozenset(trial.leaving), trial.accounts.tree
        many = 2 * len(self.row_of) + FEWEST
        is_moved = tree is not self._tree and (self._tree is None or _places(tree) != _places(self._tree))
        is_crowded = max(len(self._demands), len(self._amounts), len(self._nodes), len(self.residents) // 2) > many
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
        self.reads += 1
        self._first, self._kept = {}, {}
        self.units, self.pods = Columns(_UNIT), Columns(_POD)
        self.residents, self._surplus, self.row_of, self.movable, self._tree = [], {}, {}, {}, None
        self.kept, self.kept_nano = Counter(), Counter()
        self._demands, self._nodes, self._positions, self._amounts = {}, {}, None, {}

    def _read(self, key: Key, trial: UnitSource) -> None:
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
        of = {unit: self._put_unit(unit, place) for place, unit in enumerate(found.units)}
        rows = list(of.values())
        for row, after in pairwise(rows):
            self.units.of["next"][row] = after
        if key[1] and rows:
            self._first[key] = rows[0]
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
        if kept:
            self._kept[key] = kept

    def _put_unit(self, unit: Resident, place: int) -> int:
        cpu, mem, gpu = (min(amount, MOST) for amount in unit.amounts)
        row = self.units.put(
            leaf=unit.leaf.number,
            priority=unit.priority,
            is_core=unit.is_core,
            started_s=unit.started_s,
            owner=hash(unit.owner),
            created_s=(rfc3339.parse_ns(unit.created) or 0) // SECOND_NS,
            uid=int.from_bytes(unit.uid.encode()[:7].ljust(7, b"\0")),
            place=place,
            cpu=cpu,
            mem=mem,
            gpu=gpu,
        )
        while len(self.residents) <= row:
            self.residents.append(None)
        self.residents[row] = unit
        if unit.may_move:
            self.movable[row] = unit
        first = EMPTY
        for pod in reversed(unit.pods):
            self.row_of[pod.uid] = row
            first = self.pods.put(
                unit=row,
                node=self._nodes.setdefault(pod.node, len(self._nodes)),
                demand=self._demands.setdefault(pod.cls.demand, len(self._demands)),
                is_special=pod.has_legacy_slice,
                cpu=min(pod.cls.demand.cpu_milli, MOST),
                gpu=gpu // len(unit.pods),
                next=first,
            )
        self.units.of["first_pod"][row] = first
        return row

    def _drop(self, key: Key) -> None:
        self.reads += 1
        row = self._first.pop(key, EMPTY) if key[1] else self._row_alone(key[2])
        while row != EMPTY:
            row = self._drop_unit(row)
        for kept, (count, nano) in self._kept.pop(key, {}).items():
            self.kept[kept] -= count
            self.kept_nano[kept] -= nano

    def _row_alone(self, uid: str) -> int:
        """The unit of a pod that was in no group when it was read."""
        row = self.row_of.get(uid, EMPTY)
        unit = self.residents[row] if row != EMPTY else None
        return row if unit is not None and not unit.pods[0].pod_group else EMPTY

    def _drop_unit(self, row: int) -> int:
        """Empty its rows; return the next one of its group."""
        unit, pod_row, after = (
            self.residents[row],
            int(self.units.of["first_pod"][row]),
            int(self.units.of["next"][row]),
        )
        for pod in unit.pods if unit is not None else ():
            if self.row_of.get(pod.uid) == row:
                del self.row_of[pod.uid]
        while pod_row != EMPTY:
            dropped, pod_row = pod_row, int(self.pods.of["next"][pod_row])
            self.pods.drop(dropped)
        self.residents[row] = None
        self._surplus.pop(row, None)
        self.movable.pop(row, None)
        self.units.drop(row)
        return after

    # --- as a statement sees it --------------------------------------------------------------------------------------
    def positions(self, trial: UnitSource) -> Int64s:
        """The position of each pod's node in the statement; -1: it is not there."""
        position_of = trial.statement.position_of
        known = self._positions
        if known is None or known[0] is not position_of or known[1] != len(self._nodes):
            found = np.array([position_of.get(name, -1) for name in self._nodes] or [-1], np.int64)
            known = self._positions = position_of, len(self._nodes), found
        return known[2][self.pods.of["node"]]

    def demands(self, trial: UnitSource, rows: Iterable[int]) -> Int64s:
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
    """Tenants of devices where a book says all that is charged, and so what is left without some of them.

    ``odd``: nodes where that is not so (a device without a reservation that answers, tenants that no book names,
    slices): the statement counts them again. Arrays: of each device, and of each tenant.
    """

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

    def of(self, trial: UnitSource, table: ResidentTable) -> Tenants:
        """The tenants of all devices."""
        if self._known is None or self._last is not trial.statement.last or self._reads != table.reads:
            self._last, self._reads = trial.statement.last, table.reads
            self._known = tenants(trial, table)
        return self._known


def tenants(trial: UnitSource, table: ResidentTable) -> Tenants:
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
