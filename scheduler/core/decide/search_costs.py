"""What searches for room cost, in operations of about a microsecond (allowance.py).

Measured with 100 to 1,000 full nodes of eight pods each, warm (`time.process_time`). One that a bound refuses has read
columns of all nodes and units. One that goes on has sorted the units and counted the nodes as well. What it placed and
took off comes on top, and what is charged to nodes and queues in the end.
"""

from __future__ import annotations

from typing import Final

from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.preemption import Found, Moves, NoMoves, NoRoom

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
_LOOKING: Final = 12
_MOVING: Final = 180
_NODES_PER_OPERATION: Final = 8
#: For each of several equal needs, and for each pod that goes for one of them, as each is charged on its own.
FURTHER: Final = 450
_TAKING_APART: Final = 200


def cost_of_search(snapshot: Snapshot) -> int:
    """What a search costs at least, found or not."""
    return _SEARCHING + _rows(snapshot) // _ROWS_PER_OPERATION


def cost_of_whole(snapshot: Snapshot) -> int:
    """What it costs if no bound refuses it, but for what it places and takes off."""
    return cost_of_search(snapshot) + _going_on(snapshot)


def cost_beside(snapshot: Snapshot, answer: Found | NoRoom | Moves | NoMoves, *, needs: int = 1) -> int:
    """What it has cost beside the least: what is found costs by its size, all else by what was tried.

    ``needs``: that were served by it.
    """
    match answer:
        case Found(units=units, places=places):
            off = sum(len(unit.pods) for unit in units)
            cost = _going_on(snapshot) + _PLACING * len(places) + _TAKING_OFF * off
            return cost if needs < 2 else cost + _TAKING_APART * off
        case NoRoom(placed=placed, taken_off=taken_off):
            going_on = _going_on(snapshot) if answer.bound is None else 0
            return going_on + _PLACING * placed + _TAKING_OFF * taken_off
        case _:
            each = _MOVING + len(snapshot.ledger.row_of) // _NODES_PER_OPERATION
            return _LOOKING * answer.looked + each * answer.placed


def _rows(snapshot: Snapshot) -> int:
    return len(snapshot.ledger.row_of) + len(snapshot.pods.records)


def _going_on(snapshot: Snapshot) -> int:
    return _rows(snapshot) * _OPERATIONS_PER_ROWS // _ROWS
