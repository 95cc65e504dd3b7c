"""A working copy of the ledger in node-name order, on which one decision charges its own choices before the next.

Positions are nodes in name order, so that the first of equals is the one with the smallest name. Every change is
written down and can be taken back, which is how a gang that doesn't fit leaves no trace.

A placement is charged: a few numbers change. After an eviction its node is counted again from what would be left on it
(node_usage.py), so that a share, its book entry and its device are freed as far as they would be, and no further.
Volumes, those of unbound claims, devices of ResourceClaims and NUMA nodes are charged beside the nodes (``Copies``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np

from gpu.bind_request import PlannedDevice
from gpu.container_devices import Pin
from gpu.share import NANO_PER_DEVICE
from scheduler.core.assumed.attempts import Doubt
from scheduler.core.convert.volumes import ClaimKey
from scheduler.core.model.devices import ClaimChoice
from scheduler.core.model.numa import NumaAsk
from scheduler.core.model.pod_class import Constraints, Demand, PodClass, VolumeChoice
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.claim_statement import ClaimStatement
from scheduler.core.nodes.device_sightings import Prospect, Sightings
from scheduler.core.nodes.ledger import Ledger, devices_of
from scheduler.core.nodes.node_usage import Charge, Occupancy
from scheduler.core.nodes.numa_statement import NumaStatement
from scheduler.core.nodes.table import CPU, GPUS, MEMORY, PODS, Bools, Device, Int8s, Int64s
from scheduler.core.nodes.volume_limits import Attached, AttachStatement
from scheduler.core.nodes.volume_statement import VolumeStatement
from scheduler.core.snapshot.node_count import Supposed
from scheduler.core.snapshot.pod_counts import Counting
from wire import names


class Copies(NamedTuple):
    """Working copies, by position of nodes in the statement."""

    #: Volumes that CSI drivers attach.
    attaching: AttachStatement
    #: Volumes of claims that are bound with their pods' placements.
    binding: VolumeStatement
    #: Devices of ResourceClaims that are allocated with their pods' placements.
    allocating: ClaimStatement
    #: What is free on NUMA nodes.
    aligning: NumaStatement


class Chosen(NamedTuple):
    """What was chosen for a pod's claims, to be written before it is bound."""

    volumes: tuple[VolumeChoice, ...] = ()
    claims: tuple[ClaimChoice, ...] = ()


NOTHING_CHOSEN: Final = Chosen()


class OverCommitted(Exception):
    """Raised when a choice would charge a node or a device more than it has: a bug of the caller that chose (R5)."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """A share of one device of a node. ``slot`` None: a device that is not shared yet, under a new ``group``.

    ``resource``: what the device plugin calls it. ``compute_percent``: asked of its compute.
    """

    slot: int | None
    group: str
    nano: int
    mode: str = ""
    resource: str = names.GPU_RESOURCE
    compute_percent: int = 0


@dataclass(slots=True)
class Room:
    """How many devices may be opened on a node: of each resource, and reservation pods in all."""

    devices: dict[str, int]
    pods: int

    def has(self, resource: str) -> bool:
        """Whether one more may be opened."""
        return self.pods > 0 and self.devices.get(resource, 0) > 0

    def take(self, resource: str) -> None:
        """One was opened."""
        self.devices[resource] -= 1
        self.pods -= 1


class _Changed(msgspec.Struct):
    """What one change of a node has changed, to take it back. ``amounts``: what was taken, by row.

    ``placed``, ``evicted``, ``retired``: what it supposes; as in Supposed. ``lifted``: a nomination, and whether its
    charge is off from here on. ``free``: the column before, where it was written as a whole.
    """

    position: int
    devices: tuple[Device, ...]
    amounts: list[tuple[int, int]] = []
    placed: Charge | None = None
    evicted: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()
    lifted: tuple[str, bool] | None = None
    attached: list[Attached] = []
    claims: tuple[ClaimKey, ...] = ()
    chosen: Chosen = NOTHING_CHOSEN
    free: Int64s | None = None
    #: Pods that came to the node (1) or left it (-1).
    moved: list[tuple[PodRecord, int]] = []
    #: What a pod that was placed gets aligned.
    aligned: NumaAsk | None = None


class Statement:
    """A copy of the ledger's table in name order, and what a decision has placed and evicted on it."""

    __slots__ = (
        "_amounts",
        "_changes_at",
        "_count",
        "_journal",
        "_ledger",
        "_order",
        "_settings",
        "_sightings",
        "aligning",
        "allocating",
        "attaching",
        "binding",
        "claims",
        "counts",
        "doubts",
        "evictions",
        "filters",
        "nodes",
        "position_of",
        "table",
        "touched",
    )

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        doubts: Mapping[str, Doubt] | None = None,
        *,
        sightings: Sightings,
        copies: Callable[[Sequence[NodeRecord], Mapping[str, int]], Copies],
        count: Callable[[NodeRecord, Supposed], Occupancy],
        counting: Counting,
    ) -> None:
        """``count``: what would be used of a node. ``counting``: makes the counts of pods."""
        in_order = ledger.in_order()
        self._sightings = sightings
        self._ledger = ledger
        self._order = in_order.rows
        self._settings = settings
        self._count = count
        self._journal: list[_Changed] = []
        #: The same by position.
        self._changes_at: dict[int, list[_Changed]] = {}
        self._amounts: dict[Demand, list[tuple[int, int]]] = {}
        self.filters = ledger.filters
        self.nodes = in_order.nodes
        self.position_of = in_order.position_of
        #: Volumes and devices of claims, and claims that one pod at a time may use, in the statement.
        self.attaching, self.binding, self.allocating, self.aligning = copies(in_order.nodes, in_order.position_of)
        self.claims: set[ClaimKey] = set()
        #: How many evictions stand: what fitted nowhere before one of them may fit.
        self.evictions = 0
        #: Pods on nodes, for rules about other pods.
        self.counts = counting(ledger, in_order.rows, in_order.position_of)
        self.table = ledger.table.taken(in_order.rows)
        #: Positions of nodes that come last when a device has to be opened (assumed/attempts.py).
        self.doubts = {in_order.position_of[n]: d for n, d in (doubts or {}).items() if n in in_order.position_of}
        #: Positions that were charged or taken back, in order: what a ranking has to look at again.
        self.touched: list[int] = []

    def by_row(self, found: Bools) -> Bools:
        """What was found by position, by row of the ledger."""
        rows: Bools = np.zeros(len(self._ledger.nodes), np.bool_)
        rows[self._order] = found
        return rows

    def eligible(self, constraints: Constraints) -> Int8s:
        """Judgement of every position for these constraints."""
        return self._ledger.eligible(constraints)[self._order]

    def admitting(self, cls: PodClass) -> Int8s:
        """The same for a class, with what the terms of others keep it off."""
        return self._ledger.admitting(cls)[self._order]

    def prospect(self, position: int) -> Prospect:
        """What opening a device there could bring."""
        return self._sightings.prospect(self.nodes[position], self.table.devices[position])

    def has(self, position: int, pin: Pin) -> bool:
        """Whether a node has a device that will do, as far as anybody has ever said."""
        return self._sightings.is_known(self.nodes[position], pin)

    def slice_rows(self, profile: str) -> Int64s:
        """Of every position, which resource has the slices of a profile."""
        return self._ledger.slice_rows(profile)[self._order]

    def amounts(self, demand: Demand) -> list[tuple[int, int]]:
        """What one pod takes: resource row and amount, its pod slot included, zeros left out."""
        known = self._amounts.get(demand)
        if known is None:
            amounts = self._ledger.amounts(demand, pods=1).tolist()
            known = self._amounts[demand] = [(row, amount) for row, amount in enumerate(amounts) if amount]
        return known

    def place(
        self,
        position: int,
        pod: PodRecord,
        demand: Demand,
        parts: tuple[Part, ...] = (),
        *,
        owed_gpus: int = 0,
        attached: tuple[Attached, ...] = (),
        claims: tuple[ClaimKey, ...] = (),
        chosen: Chosen = NOTHING_CHOSEN,
    ) -> None:
        """Charge a pod that asks this; ``owed_gpus`` whole devices of it are still on their way back.

        ``attached``: its volumes that nodes limit; ``claims``: those that nobody else may use; ``chosen``: for its
        claims that are not bound or allocated.

        Raises OverCommitted.
        """
        amounts = self.amounts(demand)
        opened = [part.resource for part in parts if part.slot is None]
        if opened:
            amounts = [*amounts, *self._of_reservations(opened)]
        devices = self.table.devices[position]
        placed = Charge(
            pod_uid=pod.uid,
            node=self.nodes[position].name,
            demand=demand,
            devices=tuple(_planned(part, devices) for part in parts) if parts else (),
        )
        added = self.attaching.attach(position, attached) if attached else []
        moved = [(pod, 1)]
        self._note(
            _Changed(
                position,
                devices,
                amounts,
                placed=placed,
                attached=added,
                claims=claims,
                chosen=chosen,
                moved=moved,
                aligned=pod.aligned,
            )
        )
        self.claims.update(claims)
        if chosen.volumes:
            self.binding.take(chosen.volumes)
        if chosen.claims:
            self.allocating.take(chosen.claims)
        self.touched.append(position)
        free = self.table.free
        for row, amount in amounts:
            left = free.item(row, position) - amount
            if left < (-owed_gpus if row == GPUS else 0):
                raise OverCommitted(f"node {self.nodes[position].name} lacks {-left} of {self.table.resources[row]}")
            free[row, position] = left
        for part in parts:
            self._charge_part(position, part)
        if demand.gpus:
            self.table.put_left(position)

    def _of_reservations(self, opened: list[str]) -> list[tuple[int, int]]:
        settings, rows = self._settings, self.table.resources
        each = ((PODS, 1), (CPU, settings.reservation_cpu_milli), (MEMORY, settings.reservation_mem_mib))
        devices = [(rows.index(resource), count) for resource, count in Counter(opened).items()]
        return [*devices, *((row, len(opened) * amount) for row, amount in each if amount)]

    def room(self, position: int, demand: Demand, resources: Iterable[str]) -> Room:
        """How many devices could be opened for a pod that asks this: free ones, and pod slots for their reservations.

        What the reservations request beside is another question (placer.py).
        """
        free, rows = self.table.free, self.table.resources
        devices: dict[str, int] = {}
        for resource in resources:
            if resource == names.GPU_RESOURCE:
                devices[resource] = int(free[GPUS, position]) - demand.gpus
            elif resource and resource not in devices:
                row = rows.index(resource)
                devices[resource] = int(free[row, position]) - dict(self.amounts(demand)).get(row, 0)
        return Room(devices, int(free[PODS, position]) - 1)

    def _charge_part(self, position: int, part: Part) -> None:
        devices = self.table.devices[position]
        if part.slot is None:
            slot = len(devices)
            dev = Device(group=part.group, free_nano=NANO_PER_DEVICE, card_mib=0, is_open=True, resource=part.resource)
        else:
            slot, dev = part.slot, devices[part.slot]
        left = dev.free_nano - part.nano
        if not dev.is_open or left < 0:
            raise OverCommitted(f"group {dev.group} (open: {dev.is_open}) would be left with {left} nano-GPU")
        if not dev.suits(part.mode):
            raise OverCommitted(f"group {dev.group} runs in {dev.modes}, not in {part.mode}")
        if part.compute_percent > dev.free_compute_percent:
            raise OverCommitted(f"group {dev.group} has {dev.free_compute_percent} percent of its compute left")
        charged = msgspec.structs.replace(
            dev,
            free_nano=left,
            is_idle=False,
            is_leaving=False,
            modes=dev.modes or ((part.mode,) if part.mode else ()),
            free_compute_percent=dev.free_compute_percent - part.compute_percent,
        )
        self.table.put_device(position, slot, self.nodes[position], charged)

    def retire(self, position: int, groups: frozenset[str]) -> None:
        """Give idle devices back on paper: closed to tenants, on their way to the device plugin."""
        devices = self.table.devices[position]
        self._note(_Changed(position, devices, retired=groups))
        closed = tuple(
            msgspec.structs.replace(d, is_open=False, is_idle=False, is_leaving=True) if d.group in groups else d
            for d in devices
        )
        self.table.put_devices(position, self.nodes[position], closed)
        self.touched.append(position)

    def evict(self, *pods: PodRecord) -> None:
        """Take bound pods off their nodes, as far as the table goes: their volumes stay attached until they are gone.

        Each node is counted again once. Raises LookupError if a node is not there.
        """
        on: dict[int, list[PodRecord]] = {}
        for pod in pods:
            on.setdefault(self.position_of[pod.node], []).append(pod)
        for position, gone in on.items():
            self._count_again(position, evicted=gone)

    def lift(self, nomination_id: str, nodes: Iterable[str], *, is_off: bool = True) -> None:
        """Take off what a nomination charges on these nodes, as its nominated pods are to be placed; else put it back.

        Nodes that are gone are passed over.
        """
        for name in nodes:
            position = self.position_of.get(name)
            if position is not None:
                self._count_again(position, lifted=(nomination_id, is_off))

    def _count_again(
        self, position: int, *, evicted: Sequence[PodRecord] = (), lifted: tuple[str, bool] | None = None
    ) -> None:
        node, table = self.nodes[position], self.table
        devices, free = table.devices[position], table.free[:, position].copy()
        uids, moved = frozenset(pod.uid for pod in evicted), [(pod, -1) for pod in evicted]
        self._note(_Changed(position, devices, evicted=uids, lifted=lifted, free=free, moved=moved))
        self.evictions += bool(evicted)
        used = self._count(node, self._supposed(position))
        table.free[:, position] = table.total[:, position] - self._ledger.used(used)
        table.put_devices(position, node, devices_of(used))
        self.touched.append(position)

    def _supposed(self, position: int) -> Supposed:
        here = self._changes_at[position]
        return Supposed(
            placed=tuple(change.placed for change in here if change.placed is not None),
            evicted={uid for change in here for uid in change.evicted},
            retired={group for change in here for group in change.retired},
            lifted={
                nomination_id
                for nomination_id, is_off in dict(filter(None, (each.lifted for each in here))).items()
                if is_off
            },
        )

    def _note(self, change: _Changed) -> None:
        self._journal.append(change)
        self._changes_at.setdefault(change.position, []).append(change)
        self.aligning.take(change.position, change.aligned)
        for pod, by in change.moved:
            self.counts.move(pod, change.position, by)

    def probe(self, position: int) -> None:
        """A device is opened here: if the node is on probation, nobody else opens one."""
        if self.doubts.get(position) is Doubt.ON_PROBATION:
            self.doubts[position] = Doubt.PROBED
            self.touched.append(position)

    def charged(self) -> set[int]:
        """Rows of the ledger on which changes stand that were not taken back."""
        rows = self._order
        positions = {change.position for change in self._journal}
        return positions if isinstance(rows, slice) else {int(rows[position]) for position in positions}

    def take_effort(self) -> int:
        """What it took to count pods and to choose volumes and devices since this was asked last, in operations."""
        choosing = self.binding.take_effort() + self.allocating.take_effort() + self.aligning.take_effort()
        return self.counts.take_effort() + choosing

    @property
    def last(self) -> object | None:
        """The last change that stands. As long as it is this very object, all is as it was."""
        return self._journal[-1] if self._journal else None

    def checkpoint(self) -> int:
        """A point to come back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Take back every change since ``mark``."""
        while len(self._journal) > mark:
            change = self._journal.pop()
            position = change.position
            self._changes_at[position].pop()
            self.evictions -= bool(change.evicted)
            for pod, by in change.moved:
                self.counts.move(pod, position, -by)
            if change.free is not None:
                self.table.free[:, position] = change.free
            for row, amount in change.amounts:
                self.table.free[row, position] += amount
            self.attaching.detach(position, change.attached)
            self.claims.difference_update(change.claims)
            if change.chosen.volumes:
                self.touched.extend(self.binding.give_back(position, change.chosen.volumes))
            if change.chosen.claims:
                self.touched.extend(self.allocating.give_back(position, change.chosen.claims))
            self.table.put_devices(position, self.nodes[position], change.devices)
            self.aligning.give_back(position, change.aligned)
            self.touched.append(position)


def _planned(part: Part, devices: tuple[Device, ...]) -> PlannedDevice:
    """A part of a device, new or known, as a placement names it."""
    group = part.group if part.slot is None else devices[part.slot].group
    return PlannedDevice(group, part.nano, mode=part.mode, resource=part.resource, compute_percent=part.compute_percent)
