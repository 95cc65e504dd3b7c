"""Fair shares of all queues: the top ones divide the cluster, each one's children divide its share (batch.md 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from operator import itemgetter

from scheduler.core.model.resources import NOTHING, UNITS, UNLIMITED, Resources
from scheduler.core.queues.division import Sibling, divide
from scheduler.core.queues.tree import Tree, TreeQueue


def fair_shares(tree: Tree, total: Resources, asked: Sequence[Resources]) -> list[Resources]:
    """The fair share of each queue, by number. ``asked``: what its pods use and wait for, by number."""
    fair = [NOTHING] * len(tree.queues)
    for number, share in _divided(tree, tree.top, total, asked):
        fair[number] = share
    for queue in tree.queues:
        for number, share in _divided(tree, queue.children, fair[queue.number], asked):
            fair[number] = share
    return fair


def _divided(
    tree: Tree, numbers: Sequence[int], total: Resources, asked: Sequence[Resources]
) -> Iterator[tuple[int, Resources]]:
    """The share of each of these siblings."""
    by_dimension = []
    for at, unit in enumerate(UNITS):
        siblings = [_sibling(tree.queues[number], at, asked[number]) for number in numbers]
        divide(total[at], siblings, unit=unit)
        by_dimension.append([each.fair for each in siblings])
    return zip(numbers, starmap(Resources, zip(*by_dimension, strict=True)), strict=True)


def _sibling(queue: TreeQueue, at: int, asked: Resources) -> Sibling:
    record, of = queue.record, itemgetter(at)
    return Sibling(
        quota=of(record.quota),
        limit=of(record.limit),
        weight=of(record.weight),
        priority=record.priority,
        asked=of(asked),
        age=(record.created, record.name),
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
