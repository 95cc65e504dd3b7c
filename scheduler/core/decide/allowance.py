"""What one decision may spend, how that is divided between namespaces, and what its steps cost.

While a decision lasts nothing else runs: no event is taken, no lease is renewed, nobody else's pod is decided on. So it
ends after a bounded amount of work, and the next one, which follows at once, goes on. Work is counted in operations of
about a microsecond.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.devices.device_fit import rule_of
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Found, Moves, NoMoves, NoVictims


class Limits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Bounds of one decision. ``most``: operations in all; the default takes some 30 ms.

    ``retold``: the number of classes that are judged again though nothing may help them, those told longest ago first,
    as the counts in their verdicts may have changed. ``retelling``: operations that this may take, about.
    ``searching``: operations of searches for room, for each way to make it. ``preemption`` False: none is searched for.
    ``explains`` False: verdicts do not count nodes by reason, which takes longer than to find that a pod fits nowhere.
    """

    most: int = 30_000
    retold: int = 20
    retelling: int = 5_000
    searching: int = 50_000
    preemption: bool = True
    explains: bool = True


LIMITS: Final = Limits()
#: Beyond this many times the bound only namespaces that have had nothing go on, of any number of namespaces.
_AT_MOST: Final = 3
#: The most namespaces that go on then, each until it has spent the operations of ``_FIRST``.
_LATE: Final = 16
_FIRST: Final = 1_000


class Allowance:
    """Operations that are left to one decision. ``namespaces``: how many have pods that wait."""

    __slots__ = ("_late", "_most", "_spent", "_total", "share")

    def __init__(self, *, namespaces: int, most: int) -> None:
        self._most = most
        #: Operations of which each namespace is sure.
        self.share = most // max(1, namespaces)
        self._spent: Counter[str] = Counter()
        self._total = 0
        #: How many namespaces have had their first turn beyond the last bound.
        self._late = 0

    def has_left(self, namespace: str) -> bool:
        """Whether one more pod of this namespace may be decided on. The last one may exceed what is left."""
        if self._total < self._most:
            return True
        if self._total < _AT_MOST * self._most:
            return self._spent[namespace] <= self.share
        return self._late < _LATE and self._spent[namespace] < _FIRST

    @property
    def spent(self) -> int:
        """Operations that were done in all."""
        return self._total

    def spent_by(self, namespace: str) -> int:
        """Operations that were done for this namespace."""
        return self._spent[namespace]

    def spend(self, namespace: str, operations: int) -> None:
        """Count what was done for a pod of this namespace."""
        before = self._spent[namespace]
        self._spent[namespace] += operations
        if self._total >= _AT_MOST * self._most:
            self._late += before < _FIRST <= self._spent[namespace]
        self._total += min(operations, self._most)


COST_OF_PLACING: Final = 50
COST_OF_HOLDING_BACK: Final = 70
COST_OF_COMPARING: Final = 20
_JUDGING: Final = 180
#: For each node: of shares, and of shares for which each device is looked at; all other asks cost one for this many
#: nodes.
_COUNTING: Final = 1
_LOOKING: Final = 60
_NODES_PER_OPERATION: Final = 10
#: To count what nodes take, and one more for each this many nodes.
_COUNTING_ROOM: Final = 50
_NODES_COUNTED_PER_OPERATION: Final = 20
_PODS_PER_OPERATION: Final = 6


def cost_of_changing(snapshot: Snapshot) -> int:
    """About what it takes to change a snapshot, most of which is to copy parts of it."""
    return COST_OF_PLACING + len(snapshot.ledger.row_of) + len(snapshot.pods.records) // _PODS_PER_OPERATION


def cost_of_beginning(snapshot: Snapshot) -> int:
    """About what it takes to begin a phase of a decision, which reads columns of all nodes."""
    return COST_OF_PLACING + len(snapshot.ledger.row_of)


def cost_of_counting(snapshot: Snapshot) -> int:
    """About what it takes to count what all nodes take of a class, or of several together."""
    return _COUNTING_ROOM + len(snapshot.ledger.row_of) // _NODES_COUNTED_PER_OPERATION


def cost_of_judging(snapshot: Snapshot, cls: PodClass) -> int:
    """About what it takes to find that a class fits nowhere, and to say why."""
    ways = len(list(cls.requests()))
    nodes = len(snapshot.ledger.row_of)
    if not cls.request.is_shared or snapshot.supposes_nodes:
        return ways * (_JUDGING + nodes // _NODES_PER_OPERATION)
    is_any = rule_of(cls).takes_any
    return ways * (_JUDGING + nodes * (_COUNTING if all(map(is_any, cls.request.shared)) else _LOOKING))


_SEARCHING: Final = 2_000
_ROWS_PER_OPERATION: Final = 4
#: What follows where no bound refuses, for this many nodes and pods.
_OPERATIONS_PER_ROWS: Final = 11
_ROWS: Final = 10
#: For each pod that was placed, and taken off for that.
_PLACING: Final = 160
_TAKING_OFF: Final = 85
#: Of moving: for each node that was looked at, for each pod that was placed elsewhere, and then once more for this many
#: nodes each, as all are counted again.
_LOOKING_AGAIN: Final = 12
_MOVING: Final = 180
_NODES_MOVED_PER_OPERATION: Final = 8
#: For each of several equal needs, and for each pod that goes for one of them, as each is charged on its own.
FURTHER: Final = 450
_TAKING_APART: Final = 200


def cost_of_search(snapshot: Snapshot) -> int:
    """What a search costs at least, found or not.

    Measured with 100 to 1,000 full nodes of eight pods each, warm (`time.process_time`). A search that a bound refuses
    has read columns of all nodes and units.
    """
    return _SEARCHING + _rows(snapshot) // _ROWS_PER_OPERATION


def cost_of_whole(snapshot: Snapshot) -> int:
    """What it costs if no bound refuses it, but for what it places and takes off.

    It has sorted the units and counted the nodes as well.
    """
    return cost_of_search(snapshot) + _going_on(snapshot)


def cost_beside(snapshot: Snapshot, answer: Found | NoVictims | Moves | NoMoves, *, needs: int = 1) -> int:
    """What it has cost beside the least: what is found costs by its size, all else by what was tried.

    ``needs``: that were served by it.
    """
    match answer:
        case Found(units=units, places=places):
            off = sum(len(unit.pods) for unit in units)
            cost = _going_on(snapshot) + _PLACING * len(places) + _TAKING_OFF * off
            return cost if needs < 2 else cost + _TAKING_APART * off
        case NoVictims(placed=placed, taken_off=taken_off):
            going_on = _going_on(snapshot) if answer.bound is None else 0
            return going_on + _PLACING * placed + _TAKING_OFF * taken_off
        case _:
            each = _MOVING + len(snapshot.ledger.row_of) // _NODES_MOVED_PER_OPERATION
            return _LOOKING_AGAIN * answer.looked + each * answer.placed


def _rows(snapshot: Snapshot) -> int:
    return len(snapshot.ledger.row_of) + len(snapshot.pods.records)


def _going_on(snapshot: Snapshot) -> int:
    return _rows(snapshot) * _OPERATIONS_PER_ROWS // _ROWS
