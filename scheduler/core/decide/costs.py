"""What the steps of a decision cost, in operations of about a microsecond: what allowances are counted in."""

from __future__ import annotations

from typing import Final

from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.devices.device_fit import rule_of
from scheduler.core.model.pod_class import PodClass

PLACING: Final = 50
HOLDING_BACK: Final = 70
COMPARING: Final = 20
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


def of_changing(snapshot: Snapshot) -> int:
    """About what it takes to change a snapshot, most of which is to copy parts of it."""
    return PLACING + len(snapshot.ledger.row_of) + len(snapshot.pods.records) // _PODS_PER_OPERATION


def of_beginning(snapshot: Snapshot) -> int:
    """About what it takes to begin a phase of a decision, which reads columns of all nodes."""
    return PLACING + len(snapshot.ledger.row_of)


def of_counting(snapshot: Snapshot) -> int:
    """About what it takes to count what all nodes take of a class, or of several together."""
    return _COUNTING_ROOM + len(snapshot.ledger.row_of) // _NODES_COUNTED_PER_OPERATION


def of_judging(snapshot: Snapshot, cls: PodClass) -> int:
    """About what it takes to find that a class fits nowhere, and to say why."""
    ways = len(list(cls.requests()))
    nodes = len(snapshot.ledger.row_of)
    if not cls.request.is_shared or snapshot.supposes_nodes:
        return ways * (_JUDGING + nodes // _NODES_PER_OPERATION)
    is_any = rule_of(cls).takes_any
    return ways * (_JUDGING + nodes * (_COUNTING if all(map(is_any, cls.request.shared)) else _LOOKING))
