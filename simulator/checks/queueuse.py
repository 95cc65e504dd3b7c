"""What pods count for in their queues, by the checker's own count: what they use where they are bound, what they ask.

GPUs are whole ones, what Bindings give of shared ones, and MIG slices of ``N`` compute slices as N GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from simulator import recorded
from simulator.checks.counting import MILLI, NANO, demand, devices_named
from simulator.checks.queuetree import PER
from simulator.facts import Ask, Granted, PodFacts
from wire import names

Amounts = Mapping[str, Fraction]

NOTHING: Final[Amounts] = dict.fromkeys(PER, Fraction(0))
_SLICES: Final = re.compile(r"(?:[0-9]c\.)?([1-9])g\.")


class Row(NamedTuple):
    """What a pod counts for, and where. ``pool``: its node pool; ``is_fixed``: it can't be preempted."""

    pool: str
    queue: str
    is_fixed: bool
    used: Amounts


class Sums:
    """Rows by pod UID, and their sums by queue, for each node pool: what another pool's pods use counts in no queue."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        #: By pool and queue, and whether only what can't be preempted counts.
        self._sums: dict[tuple[str, str, bool], dict[str, Fraction]] = {}

    def row(self, uid: str) -> Row | None:
        """What a pod counts for."""
        return self._rows.get(uid)

    def put(self, uid: str, row: Row | None) -> None:
        """Take a pod's row as it is now; None: the pod is gone."""
        before = self._rows.pop(uid, None)
        if before is not None:
            self._add(before, -1)
        if row is not None:
            self._rows[uid] = row
            self._add(row, 1)

    def used(self, pool: str, queues: Iterable[str], resource: str, *, of_fixed: bool) -> Fraction:
        """What all pods of a pool in these queues use, or those of them that can't be preempted."""
        return sum((self._sums.get((pool, each, of_fixed), NOTHING)[resource] for each in queues), Fraction(0))

    def _add(self, row: Row, sign: int) -> None:
        for of_fixed in {False, row.is_fixed}:
            total = self._sums.setdefault((row.pool, row.queue, of_fixed), dict(NOTHING))
            for resource, amount in row.used.items():
                total[resource] += sign * amount


def used(pod: PodFacts, smallest_mib: int) -> Amounts:
    """What a pod uses where it is bound; without a grant, as one that names its node itself, what it asks there."""
    if not pod.node or pod.has_ended:
        return NOTHING
    if not pod.grants:
        return asked(pod, smallest_mib)
    return _with(pod, _whole(pod) + Fraction(sum(map(_nano, pod.grants)), NANO))


def asked(pod: PodFacts, smallest_mib: int) -> Amounts:
    """What a pod asks that waits; of memory of a GPU the part of the smallest card, the whole one if none is known."""
    ways = recorded.ways(pod)
    if ways:
        parts = (_part(each, smallest_mib) * max(1, _gpus(each.profile)) for each in ways[0])
    else:
        parts = (each.devices * _part(each, smallest_mib) for each in pod.asks.values() if not each.is_whole)
    return _with(pod, _whole(pod) + sum(parts, Fraction(0)))


def plus(one: Amounts, other: Amounts) -> Amounts:
    """The sum of both."""
    return {resource: amount + other[resource] for resource, amount in one.items()}


def _part(asked: Ask | recorded.Part, card_mib: int) -> Fraction:
    """The part of one device."""
    return asked.charge(card_mib) if card_mib or not asked.mem_mib else Fraction(1)


def _whole(pod: PodFacts) -> int:
    return sum(demand(pod, name) * _gpus(name) for name in devices_named(pod))


def _with(pod: PodFacts, gpus: Fraction) -> Amounts:
    return {"cpu": Fraction(demand(pod, "cpu", per=MILLI)), "memory": Fraction(demand(pod, "memory")), "gpu": gpus}


def _nano(grant: Granted) -> int:
    return grant.nano * max(1, _gpus(grant.resource))


def _gpus(resource: str) -> int:
    if resource == names.GPU_RESOURCE:
        return 1
    found = _SLICES.match(resource.removeprefix(names.MIG_RESOURCE_PREFIX))
    return int(found[1]) if found else 1
