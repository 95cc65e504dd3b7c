"""The ledger: the table of what is left on every node, with stable rows, and who may be where.

Written by the cluster only, row by row, as ``occupancy`` counted it. Rows are stable and used again, so that the cached
judgements of filters survive nodes that come and go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from operator import gt
from typing import Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.filters.filter import Filter
from scheduler.core.filters.numa import Aligning
from scheduler.core.filters.pod_affinity import OthersAntiAffinity
from scheduler.core.filters.pod_rule import NO_DOMAIN
from scheduler.core.filters.registry import FILTERS, NO_NODE, OK, Filters
from scheduler.core.model.facts import copied
from scheduler.core.model.pod_class import Constraints, Demand, PodClass
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.node_numbers import NodeNumbers
from scheduler.core.nodes.node_usage import Occupancy
from scheduler.core.nodes.table import CLOSED, GPUS, Bools, Device, Int8s, Int64s, Table, device


class Changes:
    """The number of each node's last change, by row of the ledger. ``last``: the number of the last change of any node.

    So what waits learns which nodes changed and where a change may help a pod that fitted nowhere before. A node that
    only lost something can't help anybody.
    """

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


#: What a node has is cut to 2^59 and what is asked to 2^60, so that no sum leaves 64 bits and an absurd ask still fits
#: nowhere.
MOST_HAD: Final = 1 << 59
MOST_ASKED: Final = 1 << 60
_FEWEST_ROWS: Final = 16
#: The most labels, and the most asks of some filters alone, that are kept; beyond that they are found again.
_MOST_FOUND: Final = 1_000
#: What it takes to look at the label of a node, in operations of about a microsecond.
_NODES_PER_OPERATION: Final = 10
#: In the place of a resource's row, on a node that has none of it.
NO_RESOURCE: Final = -1


#: No two states of labels have one number, those of copies included.
_VERSIONS: Final = count()


class InOrder(msgspec.Struct, frozen=True, gc=False):
    """Nodes by name, the order in which ties are broken. ``rows`` is a slice if the rows are in that order."""

    rows: Int64s | slice
    nodes: list[NodeRecord]
    position_of: dict[str, int]


class Ledger:
    """One row a node. Rows without a node are on the free list and not in the order."""

    __slots__ = (
        *("_admitted", "_differs_at", "_domain_numbers", "_domains", "_eligible", "_free_rows", "_in_order"),
        *("_judged", "_like", "_slice_rows"),
        *("changes", "effort_spent", "filters", "labels_version", "nodes", "numa_free", "numbers"),
        *("regrouped", "row_of", "table"),
    )

    def __init__(self, filters: Filters = FILTERS) -> None:
        self.filters = filters
        self.table = Table()
        self.row_of: dict[str, int] = {}
        self.nodes: list[NodeRecord | None] = []
        self._free_rows: list[int] = []
        self._eligible: dict[Constraints, Int8s] = {}
        #: Of those that are not judged on all rows yet: on how many.
        self._judged: dict[Constraints, int] = {}
        #: Which rows changed, and how.
        self.changes = Changes()
        #: What decisions have counted as free on NUMA nodes, by node, until it is written or touched.
        self.numa_free: dict[str, Aligning] = {}
        #: MIG profile -> the row of the resource that has its slices on each node, NO_RESOURCE where none has.
        self._slice_rows: dict[str, Int64s] = {}
        self._in_order: InOrder | None = None
        #: Key of a label -> value -> rows, of keys that others' terms name; until a node changes.
        self._domains: dict[str, dict[str, list[int]]] = {}
        #: The same as numbers by row.
        self._domain_numbers: dict[str, tuple[Int64s, int]] = {}
        #: What some filters alone admit, by what they are asked; until a node changes.
        self._admitted: dict[tuple[object, ...], Bools] = {}
        #: Another number whenever nodes have come or gone, or one has other labels.
        self.labels_version = next(_VERSIONS)
        #: What preferences read of nodes.
        self.numbers = NodeNumbers()
        #: How often the domains of nodes, or the nodes that count in them, have changed: labels and taints say that.
        self.regrouped = 0
        #: What finding both has cost so far, in operations of about a microsecond.
        self.effort_spent = 0
        #: The ledger of which this is a copy, and the rows whose nodes are others since.
        self._like: Ledger | None = None
        self._differs_at: dict[int, None] = {}

    def copy(self) -> Self:
        """The same nodes, to be changed by themselves.

        Judgements are taken over when they are asked for: the other one must not change as long as this is used.
        """
        table = self.table.taken(slice(None))
        table.resources = list(self.table.resources)
        changes = Changes()
        changes.grow(len(self.nodes))
        return copied(
            self,
            table=table,
            changes=changes,
            row_of=dict(self.row_of),
            nodes=list(self.nodes),
            _free_rows=list(self._free_rows),
            _slice_rows={profile: rows.copy() for profile, rows in self._slice_rows.items()},
            _eligible={},
            _judged={},
            _domains={},
            _domain_numbers={},
            _admitted={},
            numa_free={},
            numbers=self.numbers.copy(),
            _like=self,
            _differs_at={},
        )

    def put(self, node: NodeRecord) -> bool:
        """Add a node or replace its record; its row has to be written afterwards.

        Returns whether it has a resource that no node had before. Then all rows have to be: pods on other nodes may
        use it, though these have none to give.
        """
        row = self.row_of.get(node.name)
        if row is None:
            row = self._free_rows.pop() if self._free_rows else self._grow()
            self.row_of[node.name] = row
        known = self.nodes[row]
        self.numa_free.pop(node.name, None)
        self.nodes[row] = node
        self.numbers.put(row, node)
        self._in_order = None
        if self._like is not None:
            self._differs_at[row] = None
        resources = len(self.table.resources)
        for name, _ in node.capacity.extended:
            self.table.add_resource(name)
        for profile, rows in self._slice_rows.items():
            rows[row] = self._slice_row(node, profile)
        if known is None or known.labels != node.labels:
            self._forget_domains()
        if known is None or _grouping(known) != _grouping(node):
            self.regrouped += 1
        if known is None or not self.filters.admit_alike(known, node):
            self._admitted.clear()
            for constraints, judged in self._eligible.items():
                judged[row] = self.filters.judge(node, constraints)
        self.changes.note(row, may_help=True)
        return len(self.table.resources) > resources

    def touch(self, name: str) -> None:
        """Something that is not written here may help on a node."""
        if name in self.row_of:
            self.numa_free.pop(name, None)
            self.changes.note(self.row_of[name], may_help=True)

    def drop(self, name: str) -> None:
        """Take a node out; its row is used again for another."""
        row = self.row_of.pop(name)
        self.numa_free.pop(name, None)
        self.nodes[row] = None
        self.numbers.put(row, None)
        if self._like is not None:
            self._differs_at[row] = None
        self.table.clear(row)
        self._forget_domains()
        self.regrouped += 1
        for judged in self._eligible.values():
            judged[row] = NO_NODE
        for rows in self._slice_rows.values():
            rows[row] = NO_RESOURCE
        self._free_rows.append(row)
        self._in_order = None
        self.changes.note(row, may_help=False)

    def write(self, name: str, used: Occupancy) -> None:
        """Write what is left of a node."""
        row, node = self._find(name)
        self.numa_free.pop(name, None)
        total = self.amounts(node.capacity, pods=node.pods, most=MOST_HAD)
        free, devices = total - self.used(used), devices_of(used)
        was_free, had = self.table.free[:, row].tolist(), self.table.devices[row]
        self.table.total[:, row] = total
        self.table.free[:, row] = free
        self.table.put_devices(row, node, devices)
        # A few numbers: NumPy takes longer to begin than lists do to end.
        is_free = free.tolist()
        if may_help := any(map(gt, is_free, was_free)) or may_take_more(had, devices):
            self.changes.note(row, may_help=may_help)
        elif devices != had or is_free != was_free:
            self.changes.note(row, may_help=False)

    def differences(self, name: str, used: Occupancy) -> list[str]:
        """Where the row of ``name`` differs from what ``used`` says; empty when it is right."""
        row, node = self._find(name)
        table = self.table
        expected = self.amounts(node.capacity, pods=node.pods, most=MOST_HAD) - self.used(used)
        free, found = table.free[:, row], []
        if (free != expected).any():
            found = [
                f"node {name}: {resource} free is {had}, a recount gives {counted}"
                for resource, had, counted in zip(table.resources, free, expected, strict=True)
                if had != counted
            ]
        devices = devices_of(used)
        if devices != table.devices[row]:
            found.append(f"node {name}: shared devices are {table.devices[row]}, a recount gives {devices}")
        cards = [dev for dev in devices if dev.is_open and dev.is_gpu and not node.refuses_shares]
        slices = [dev for dev in devices if dev.is_open and (not dev.is_gpu or node.is_mig)]
        for kind, array, shown in (("device", table.share_nano, cards), ("slice", table.slice_nano, slices)):
            slots = [int(nano) for nano in array[:, row] if nano != CLOSED]
            if slots != [dev.free_nano for dev in shown]:
                found.append(f"node {name}: the {kind} slots hold {slots}, not what its devices have")
        return found

    def amounts(self, demand: Demand, *, pods: int, most: int = MOST_ASKED) -> Int64s:
        """A demand as one number per resource, at most ``most``. Resources that no node has are left out."""
        known = (demand.cpu_milli, demand.mem_mib, demand.ephemeral_mib, pods, demand.gpus)
        return self._by_resource(known, demand.extended, most)

    def used(self, used: Occupancy) -> Int64s:
        """What a node was counted to use, as one number per resource."""
        known = (used.cpu_milli, used.mem_mib, used.ephemeral_mib, used.pods, used.gpus)
        return self._by_resource(known, used.extended.items(), MOST_ASKED)

    def _by_resource(self, known: tuple[int, ...], extended: Iterable[tuple[str, int]], most: int) -> Int64s:
        """One number per resource, at most ``most``. ``known``: of those that every node has, in their order."""
        resources = self.table.resources
        amounts = [min(most, amount) for amount in known]
        amounts += [0] * (len(resources) - len(amounts))
        for name, amount in extended:
            if name in resources:
                amounts[resources.index(name)] = min(amount, most)
        return np.array(amounts, np.int64)

    def in_order(self) -> InOrder:
        """Rows that have a node, by node name; kept until a node changes."""
        if self._in_order is None:
            order = sorted(self.row_of)
            rows = [self.row_of[name] for name in order]
            self._in_order = InOrder(
                slice(len(rows)) if rows == list(range(len(rows))) else np.array(rows, np.int64),
                [self._find(name)[1] for name in order],
                {name: position for position, name in enumerate(order)},
            )
        return self._in_order

    def eligible(self, constraints: Constraints) -> Int8s:
        """Judgement of every row for these constraints (filters/registry.py), kept and updated from then on."""
        known = self._known(constraints)
        if known is not None and constraints not in self._judged:
            return known
        self.judge_some(constraints, self.effort(constraints))
        return self._eligible[constraints]

    def judge_some(self, constraints: Constraints, most: int) -> int:
        """Go on to judge the rows for these constraints, with about this effort; return what it took."""
        judged = self._known(constraints)
        if judged is None:
            judged = self._eligible[constraints] = np.full(len(self.nodes), NO_NODE, np.int8)
            self._judged[constraints] = 0
        done = self._judged.get(constraints)
        if done is None:
            return 0
        each, judge = self.filters.effort(constraints), self.filters.judging(constraints)
        rows = self.nodes[done : done + max(1, most // each)]
        judged[done : done + len(rows)] = [NO_NODE if node is None else judge(node) for node in rows]
        self._judged[constraints] = done + len(rows)
        if done + len(rows) >= len(self.nodes):
            del self._judged[constraints]
        return each * len(rows)

    def _known(self, constraints: Constraints) -> Int8s | None:
        """Judgements so far; of a copy also those of the other ledger, with nodes that are others judged again."""
        known = self._eligible.get(constraints)
        if known is not None or self._like is None or self._like.effort(constraints):
            return known
        of_other = self._like.eligible(constraints)
        judged = np.full(len(self.nodes), NO_NODE, np.int8)
        judged[: len(of_other)] = of_other
        judge = self.filters.judging(constraints)
        for row in self._differs_at:
            node = self.nodes[row]
            judged[row] = NO_NODE if node is None else judge(node)
        self._eligible[constraints] = judged
        return judged

    def admitting(self, cls: PodClass) -> Int8s:
        """The same for a class, with what the terms of others keep it off."""
        judged = self.eligible(cls.constraints)
        if not cls.avoids:
            return judged
        rows = [row for key, value in cls.avoids for row in self._domain(key).get(value, ())]
        narrowed, number = judged.copy(), self.filters.number(OthersAntiAffinity)
        narrowed[rows] = np.where((judged[rows] == OK) | (judged[rows] > number), number, judged[rows])
        return narrowed

    def _forget_domains(self) -> None:
        self.labels_version = next(_VERSIONS)
        self._domains.clear()
        self._domain_numbers.clear()
        self._admitted.clear()

    def domains(self, key: str) -> tuple[Int64s, int]:
        """Of each row the number of its node's value of a label, NO_DOMAIN without one; and the number of values."""
        known = self._domain_numbers.get(key)
        if known is None:
            if len(self._domain_numbers) >= _MOST_FOUND:
                self._forget_domains()
            self.effort_spent += len(self.nodes) // _NODES_PER_OPERATION
            values = [None if node is None else node.labels.get(key) for node in self.nodes]
            number_of: defaultdict[str | None, int] = defaultdict(count().__next__, {None: NO_DOMAIN})
            numbers = np.fromiter(map(number_of.__getitem__, values), np.int64, len(values))
            known = self._domain_numbers[key] = numbers, len(number_of) - 1
        return known

    def admitted(self, filters: tuple[Filter, ...], constraints: Constraints) -> Bools:
        """Rows with a node that these filters admit; others are not asked."""
        asks = tuple((each, each.asked(constraints)) for each in filters)
        key = tuple((each.kind, ask) for each, ask in asks)
        known = self._admitted.get(key)
        if known is None:
            if len(self._admitted) >= _MOST_FOUND:
                self._admitted.clear()
            self.effort_spent += len(self.nodes) * (1 + sum(each.effort(ask) for each, ask in asks if ask is not None))
            found: list[bool] = [node is not None for node in self.nodes]
            for each, ask in asks:
                if ask is not None:
                    found = [
                        node is not None and is_in and each.admits(node, ask)
                        for node, is_in in zip(self.nodes, found, strict=True)
                    ]
            known = self._admitted[key] = np.array(found, np.bool_)
        return known

    def _domain(self, key: str) -> dict[str, list[int]]:
        known = self._domains.get(key)
        if known is None:
            known = self._domains[key] = {}
            for row, node in enumerate(self.nodes):
                if node is not None and (value := node.labels.get(key)) is not None:
                    known.setdefault(value, []).append(row)
        return known

    def slice_rows(self, profile: str) -> Int64s:
        """Of every row of the table, which resource has the slices of a profile; kept and updated from then on."""
        known = self._slice_rows.get(profile)
        if known is None:
            rows = [NO_RESOURCE if node is None else self._slice_row(node, profile) for node in self.nodes]
            known = self._slice_rows[profile] = np.array(rows, np.int64)
        return known

    def _slice_row(self, node: NodeRecord, profile: str) -> int:
        resource = node.resource_of(profile)
        return self.table.resources.index(resource) if resource else NO_RESOURCE

    def effort(self, constraints: Constraints) -> int:
        """What it takes to judge all nodes for these constraints, as far as they are not judged already."""
        done = self._judged.get(constraints, len(self.nodes) if self._known(constraints) is not None else 0)
        left = len(self.nodes) - done
        # Asked several times a placement, and mostly all are judged.
        return left and self.filters.effort(constraints) * left

    @property
    def constraints(self) -> int:
        """For how many constraints judgements are kept."""
        return len(self._eligible)

    def forget_profiles(self, live: set[str]) -> None:
        """Drop the rows of MIG profiles of which no waiting pod asks a part."""
        for profile in self._slice_rows.keys() - live:
            del self._slice_rows[profile]

    def forget_constraints(self, live: set[Constraints]) -> None:
        """Drop the judgements of constraints that no waiting pod has."""
        for constraints in [c for c in self._eligible if c not in live]:
            del self._eligible[constraints]
            self._judged.pop(constraints, None)

    def _find(self, name: str) -> tuple[int, NodeRecord]:
        row = self.row_of[name]
        node = self.nodes[row]
        if node is None:
            raise LookupError(f"row {row} of node {name} is empty")
        return row, node

    def _grow(self) -> int:
        """Add rows, as many as there are, and return the first of them."""
        old = len(self.nodes)
        more = max(_FEWEST_ROWS, old)
        self.nodes += [None] * more
        self.table.add_columns(more)
        self.changes.grow(len(self.nodes))
        for constraints, judged in self._eligible.items():
            self._eligible[constraints] = np.concatenate([judged, np.full(more, NO_NODE, np.int8)])
        for profile, rows in self._slice_rows.items():
            self._slice_rows[profile] = np.concatenate([rows, np.full(more, NO_RESOURCE, np.int64)])
        self._free_rows += range(old + more - 1, old, -1)
        return old


def devices_of(used: Occupancy) -> tuple[Device, ...]:
    """The shared devices of a node as it was counted, by group."""
    return tuple(device(used.groups[key]) for key in sorted(used.groups)) if used.groups else ()


def _grouping(node: NodeRecord) -> tuple[object, ...]:
    """What says in which domains a node is, and whether it counts in them."""
    return node.labels, node.taints, node.is_joining


#: As many as nobody asks for.
_MANY: Final = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """What nodes have in all: a pod that asks more than any node has fits nowhere, with all other pods gone.

    ``total``: by resource and row of the ledger; ``devices``: by row, as many as a node has or may ever have shared.
    ``version``: another number whenever one of these is another one.
    """

    version: int
    total: Int64s
    devices: Int64s

    @classmethod
    def of(cls, ledger: Ledger, before: Self | None = None) -> Self:
        """Return what nodes have now: ``before`` itself if that is the same."""
        total = ledger.table.total
        # Devices stay shared though their node reports fewer GPUs.
        devices: Int64s = np.maximum(total[GPUS], len(ledger.table.share_nano)) * total.any(axis=0)
        if before is None:
            return cls(0, total.copy(), devices)
        if np.array_equal(before.total, total) and np.array_equal(before.devices, devices):
            return before
        return cls(before.version + 1, total.copy(), devices)

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Capacity):
            return NotImplemented
        alike = np.array_equal(self.total, other.total) and np.array_equal(self.devices, other.devices)
        return self.version == other.version and alike

    @override
    def __hash__(self) -> int:
        return hash(self.version)

    def may_hold(self, ledger: Ledger, wanted: PodClass) -> bool:
        """Whether a node may have what a pod of a class asks, with nobody else there, as far as these sums tell."""
        return any(self._may_hold(ledger, way) for way in wanted.ways())

    def _may_hold(self, ledger: Ledger, way: PodClass) -> bool:
        if not all(name in ledger.table.resources for name, _ in way.demand.extended):
            return False
        asked = ledger.amounts(way.demand, pods=1)
        enough = (self.total >= asked[:, None]).all(axis=0)
        asks = way.request.shared
        return bool((enough & (self.devices * self._parts(asks) >= len(asks))).any())

    def _parts(self, asks: tuple[SharedAsk, ...]) -> int:
        """How many of the smallest part that is asked one device holds."""
        smallest = min(map(_least_nano, asks), default=0)
        return NANO_PER_DEVICE // smallest if smallest > 0 else _MANY


def _least_nano(ask: SharedAsk) -> int:
    """The least that it takes of a card; 0 where that says nothing: of slices, and memory of cards of any size."""
    return ask.nano if isinstance(ask, FractionAsk) and not ask.profile else 0
