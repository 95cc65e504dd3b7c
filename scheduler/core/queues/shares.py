"""Fair shares of all queues: the top ones divide the cluster, each one's children divide its share (batch.md 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap
from operator import itemgetter
from typing import Final

from scheduler.core.model.resources import NOTHING, UNITS, UNLIMITED, Resources
from scheduler.core.queues.division import Sibling, divide
from scheduler.core.queues.division_record import DivisionRecord
from scheduler.core.queues.tree import Tree, TreeQueue
from scheduler.core.queues.use_over_time import NO_USE, NOT_COUNTED, Ppb, UseOverTime

#: What is divided among the queues at the top: the cluster, which is no queue.
TOP: Final = -1


@dataclass(slots=True)
class Records:
    """The divisions of all levels, one for each dimension, by the number of the queue whose share is divided."""

    of: dict[int, tuple[DivisionRecord, ...]] = field(default_factory=dict)

    def open(self, parent: int) -> tuple[DivisionRecord, ...]:
        """Make the records of one level."""
        self.of[parent] = made = tuple(DivisionRecord() for _ in UNITS)
        return made


@dataclass(slots=True)
class Divisions:
    """The divisions of one tree as they were made last: one of the same numbers is not made again.

    By the number of the queue whose share is divided, and dimension: what it was made of, and the shares.
    """

    of: dict[tuple[int, int], tuple[object, list[int]]] = field(default_factory=dict)


def fair_shares(
    tree: Tree,
    total: Resources,
    asked: Sequence[Resources],
    *,
    used: UseOverTime = NOT_COUNTED,
    records: Records | None = None,
    known: Divisions | None = None,
) -> list[Resources]:
    """The fair share of each queue, by number. ``asked``: what its pods use and wait for, by number.

    ``records``: takes the steps of each division. ``known``: what may be taken over, and takes what is made; of this
    tree.
    """
    fair, used_ppb = [NOTHING] * len(tree.queues), use_by_number(tree, used)

    def divided(numbers: Sequence[int], at: int, has: int, record: DivisionRecord | None) -> list[int]:
        siblings = [_sibling(tree.queues[n], at, asked[n], used_ppb[n][at]) for n in numbers]
        divide(has, siblings, unit=UNITS[at], k_milli=used.k_milli, record=record)
        return [each.fair for each in siblings]

    def shares(parent: int, numbers: Sequence[int], at: int, has: int) -> list[int]:
        if known is None:
            return divided(numbers, at, has, None)
        made_of = has, used.k_milli, [asked[n][at] for n in numbers], [used_ppb[n][at] for n in numbers]
        found = known.of.get((parent, at))
        if found is None or found[0] != made_of:
            found = known.of[parent, at] = made_of, divided(numbers, at, has, None)
        return found[1]

    levels = [(TOP, tree.top), *((queue.number, queue.children) for queue in tree.queues if queue.children)]
    for parent, numbers in levels:
        has = total if parent == TOP else fair[parent]
        if records is not None:
            by_dimension = [divided(numbers, at, has[at], record) for at, record in enumerate(records.open(parent))]
        else:
            by_dimension = [shares(parent, numbers, at, has[at]) for at in range(len(UNITS))]
        for number, share in zip(numbers, starmap(Resources, zip(*by_dimension, strict=True)), strict=True):
            fair[number] = share
    return fair


def use_by_number(tree: Tree, used: UseOverTime) -> list[Ppb]:
    """The use of each queue and of those below it, by number."""
    of = [NO_USE] * len(tree.queues)
    for name, (cpu, mem, gpu) in used.of.items():
        queue = tree.find(name)
        for number in () if queue is None else queue.path:
            before = of[number]
            of[number] = before[0] + cpu, before[1] + mem, before[2] + gpu
    return of


def _sibling(queue: TreeQueue, at: int, asked: Resources, used_ppb: int) -> Sibling:
    record, of = queue.record, itemgetter(at)
    return Sibling(
        quota=of(record.quota),
        limit=of(record.limit),
        weight=of(record.weight),
        priority=record.priority,
        asked=of(asked),
        age=(record.created, record.name),
        used_ppb=used_ppb,
    )


def allocatable(queue: TreeQueue, fair: Resources) -> Resources:
    """How much a queue may come to use before others have the better right: its share, or its quota if that is more.

    KAI's AllocatableShare: the limit where the quota has no end.
    """
    record = queue.record
    return Resources(
        *(
            limit if quota >= UNLIMITED else min(limit, max(quota, share))
            for quota, limit, share in zip(record.quota, record.limit, fair, strict=True)
        )
    )
