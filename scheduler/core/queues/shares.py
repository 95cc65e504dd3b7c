"""Fair shares of all queues: the top ones divide the cluster, the children of each divide its share."""

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

    ``levels``: by the number of the queue whose share is divided, what it was made of, and the shares; ``of``: the same
    of each dimension alone.
    """

    levels: dict[int, tuple[object, list[Resources]]] = field(default_factory=dict)
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
    dividing = _Dividing(tree, asked, use_by_number(tree, used), used.k_milli, known or Divisions())
    fair = [NOTHING] * len(tree.queues)
    levels = [(TOP, tree.top), *((queue.number, queue.children) for queue in tree.queues if queue.children)]
    for parent, numbers in levels:
        has = total if parent == TOP else fair[parent]
        if records is None:
            shares = dividing.known_shares(parent, numbers, has)
        else:
            shares = dividing.shares(numbers, has, records.open(parent))
        for number, share in zip(numbers, shares, strict=True):
            fair[number] = share
    return fair


@dataclass(slots=True)
class _Dividing:
    """What all divisions of one time are made of. ``asked``, ``used_ppb``: by number."""

    tree: Tree
    asked: Sequence[Resources]
    used_ppb: Sequence[Ppb]
    k_milli: int
    known: Divisions

    def known_shares(self, parent: int, numbers: Sequence[int], has: Resources) -> list[Resources]:
        """The shares of the children of a queue, taken over if they were made of the same."""
        made_of = has, self.k_milli, [self.asked[n] for n in numbers], [self.used_ppb[n] for n in numbers]
        found = self.known.levels.get(parent)
        if found is None or found[0] != made_of:
            by_dimension = [self._known(parent, numbers, at, has[at]) for at in range(len(UNITS))]
            found = self.known.levels[parent] = made_of, _joined(by_dimension)
        return found[1]

    def _known(self, parent: int, numbers: Sequence[int], at: int, has: int) -> list[int]:
        made_of = has, self.k_milli, [self.asked[n][at] for n in numbers], [self.used_ppb[n][at] for n in numbers]
        found = self.known.of.get((parent, at))
        if found is None or found[0] != made_of:
            found = self.known.of[parent, at] = made_of, self._divided(numbers, at, has, None)
        return found[1]

    def shares(self, numbers: Sequence[int], has: Resources, records: Sequence[DivisionRecord]) -> list[Resources]:
        """The shares of queues side by side, which divide what the one above them has, with each step on record."""
        return _joined([self._divided(numbers, at, has[at], record) for at, record in enumerate(records)])

    def _divided(self, numbers: Sequence[int], at: int, has: int, record: DivisionRecord | None) -> list[int]:
        siblings = [_sibling(self.tree.queues[n], at, self.asked[n], self.used_ppb[n][at]) for n in numbers]
        divide(has, siblings, unit=UNITS[at], k_milli=self.k_milli, record=record)
        return [each.fair for each in siblings]


def _joined(by_dimension: Sequence[Sequence[int]]) -> list[Resources]:
    return list(starmap(Resources, zip(*by_dimension, strict=True)))


def use_by_number(tree: Tree, used: UseOverTime) -> list[Ppb]:
    """The use of each queue and of those below it, by number."""
    of = [NO_USE] * len(tree.queues)
    for name, (cpu, mem, gpu) in used.of.items():
        queue = tree.find(name)
        path = () if queue is None else queue.path[:1] if used.is_summed else queue.path
        for number in path:
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
    (cpu, mem, gpu), (most_cpu, most_mem, most_gpu) = queue.record.quota, queue.record.limit
    return Resources(
        most_cpu if cpu >= UNLIMITED else min(most_cpu, max(cpu, fair[0])),
        most_mem if mem >= UNLIMITED else min(most_mem, max(mem, fair[1])),
        most_gpu if gpu >= UNLIMITED else min(most_gpu, max(gpu, fair[2])),
    )
