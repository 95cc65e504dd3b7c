"""Which events may help pods and gangs that are unschedulable, by sums of nodes and by rules about other pods.

Sums are never too strict: a node that a closer look would refuse may pass, one that would take a pod of the class
always does. Few rows are looked at one by one, many at once: below some ten of them numpy's calls cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from gpu.request import FractionAsk, SharedAsk
from scheduler.core.filters.pod_rule import Drawing, Matcher, TakenByAll, Watched, without_key
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import Constraints, PodClass
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Bools, Int64s, Table

_FEW: Final = 10


class Columns(NamedTuple):
    """A table of what is left, and where each row of the ledger is in it; None for a row that has no node."""

    table: Table
    column_of: Callable[[int], int | None]


class Needs(NamedTuple):
    """What a class needs of each node. ``amounts``: by row of the table; None if no node has one of its resources.

    ``asks``: the first share that it asks, if there is one, and if nothing else will do in its place.
    """

    cls: PodClass
    amounts: list[tuple[int, int]] | None
    gpus: int
    resources: int
    constraints: tuple[Constraints, ...] = ()
    asks: tuple[SharedAsk, ...] = ()


def needs_of(ledger: Ledger, cls: PodClass) -> Needs:
    """What a class needs, as long as the table has as many resources as it has now."""
    resources = ledger.table.resources
    if not all(name in resources for name, _ in cls.demand.extended):
        return Needs(cls, None, 0, len(resources))
    amounts = ledger.amounts(cls.demand, pods=1).tolist()
    asked = [(at, each) for at, each in enumerate(amounts) if each]
    asks = () if cls.alternatives else cls.request.shared[:1]
    return Needs(cls, asked, amounts[GPUS], len(resources), cls.all_constraints(), tuple(asks))


def passing(ledger: Ledger, needs: Needs, rows: Sequence[int], columns: Columns | None = None) -> Sequence[int]:
    """Rows of those given on which the class passes; by the ledger's own table, or by another one."""
    if needs.amounts is None:
        return ()
    if out := needs.cls.excluded:
        rows = [row for row in rows if (node := ledger.nodes[row]) is None or node.name not in out]
    if not rows:
        return ()
    if columns is None and len(rows) > _FEW:
        at_once = np.array(rows, np.int64)
        many: list[int] = at_once[_pass(ledger, needs, at_once)].tolist()
        return many
    table, column_of = columns or Columns(ledger.table, _same)
    judged = [ledger.eligible(constraints) for constraints in needs.constraints]
    found: list[int] = []
    for row in rows:
        column = column_of(row) if any(each.item(row) == OK for each in judged) else None
        if column is not None and _passes(table, needs, column):
            found.append(row)
    return found


def has_slots(ledger: Ledger, needs: Needs, rows: Sequence[int], wanted: int) -> bool:
    """Whether a number of pods of the class may fit on rows on which it passes, by the ledger's own table."""
    found = 0
    for row in rows:
        found += slots(ledger.table, needs, row)
        if found >= wanted:
            return True
    return False


def slots(table: Table, needs: Needs, column: int) -> int:
    """How many pods of a class that passes there a column takes at most, idle reservations included."""
    if needs.asks:
        return 1
    return max(1, min((_left(table, at, column) // amount for at, amount in needs.amounts or ()), default=1))


def _left(table: Table, at: int, column: int) -> int:
    """What a column may have of a resource: of GPUs with those that idle reservations hold."""
    left = int(table.free.item(at, column))
    if at == GPUS:
        left += int(table.extra.item(IDLE, column)) + int(table.extra.item(LEAVING, column))
    return left


def _same(row: int) -> int:
    return row


def _passes(table: Table, needs: Needs, column: int) -> bool:
    if any(_left(table, at, column) < amount for at, amount in needs.amounts or ()):
        return False
    if not needs.asks:
        return True
    could_open = _left(table, GPUS, column)
    return all(could_open > needs.gpus or _takes(table, ask, column) for ask in needs.asks)


def _takes(table: Table, ask: SharedAsk, column: int) -> bool:
    """Whether a device that is shared already may take an ask."""
    if ask.profile:
        return True
    if isinstance(ask, FractionAsk):
        return any(each >= ask.nano for each in table.share_nano[:, column].tolist())
    return any(each >= ask.mem_mib for each in table.share_mib[:, column].tolist())


def _pass(ledger: Ledger, needs: Needs, rows: Int64s) -> Bools:
    """The same of many rows at once."""
    table, cls = ledger.table, needs.cls
    found: Bools = np.zeros(len(rows), np.bool_)
    for constraints in needs.constraints:
        found |= ledger.eligible(constraints)[rows] == OK
    free, amounts = table.free[:, rows], ledger.amounts(cls.demand, pods=1)
    free[GPUS] += table.extra[IDLE, rows] + table.extra[LEAVING, rows]
    asked = np.flatnonzero(amounts)
    found &= np.logical_and.reduce(free[asked] >= amounts[asked, None], axis=0)
    for ask in needs.asks:
        found &= _take(ledger, ask, rows) | (free[GPUS] > amounts[GPUS])
    return found


def _take(ledger: Ledger, ask: SharedAsk, rows: Int64s) -> Bools:
    if ask.profile:
        return np.ones(len(rows), np.bool_)
    table = ledger.table
    if isinstance(ask, FractionAsk):
        fits = table.share_nano[:, rows] >= ask.nano
    else:
        fits = table.share_mib[:, rows] >= ask.mem_mib
    found: Bools = np.logical_or.reduce(fits, axis=0)
    return found


#: The most comparisons of a pod with selectors that are made for a class; if there are more, it is judged again.
MOST_COMPARED: Final = 500


class RuleWatch(msgspec.Struct, frozen=True):
    """As of when rules were asked. ``seen``: the next change of places; -1: of that nobody can tell.

    ``regrouped``: as the ledger counts it. ``closed``: a byte a row, 0 where rules did not close it; what is free on
    others makes no difference as long as nothing opens them.

    Each part of a rule names the pods whose coming or going matters to it (filters/pod_rule.py), so an event of a pod
    wakes those classes only of which a part looks at that pod.
    """

    watched: tuple[Watched, ...]
    seen: int
    regrouped: int
    closed: bytes

    def left(self, rows: Iterable[int]) -> list[int]:
        """Those of some rows that rules did not close."""
        return [row for row in rows if row >= len(self.closed) or not self.closed[row]]

    def is_current(self, ledger: Ledger, places: PodPlaces | None) -> bool:
        """Whether nothing has changed since that any rule reads."""
        return places is not None and self.seen == places.number and self.regrouped == ledger.regrouped

    def still_closed(self, ledger: Ledger, places: PodPlaces | None) -> RuleWatch | None:
        """The same as of now, if no node can have been opened since; else None."""
        if places is None or self.seen < 0 or self.regrouped != ledger.regrouped:
            return None
        effort = sum(1 + watched.matcher.effort() for watched in self.watched)
        changes = places.changes_since(self.seen, MOST_COMPARED // max(1, effort))
        if changes is None:
            return None
        for pod, by in changes:
            for watched in self.watched:
                matters = watched.comes if by > 0 else watched.goes
                if matters and watched.matcher.takes(pod, places.labels_of):
                    return None
        return msgspec.structs.replace(self, seen=places.number)


def watch_of(ledger: Ledger, places: PodPlaces | None, cls: PodClass, closed: Bools | None) -> RuleWatch | None:
    """What to watch for a class; None if it asks nothing of other pods.

    ``closed``: the rows that rules close, by pods as ``places`` has them; None: its verdict is of others, placed or
    evicted on paper.
    """
    if not asks_others(cls):
        return None
    parts = (part.watched for _, part in ledger.filters.parts(cls))
    watched = tuple(one for one in parts if one is not None)
    if places is None or closed is None:
        return RuleWatch(watched, -1, ledger.regrouped, b"")
    return RuleWatch(watched, places.number, ledger.regrouped, closed.tobytes())


def asks_others(cls: PodClass) -> bool:
    """Whether rules about other pods may keep a class off nodes."""
    return cls.rules is not None or bool(cls.taken_by)


#: A gang of more classes is tried again after every change: each class costs a look at all nodes.
_MOST_CLASSES: Final = 32


class GangWatch(msgspec.Struct, frozen=True):
    """As of when a gang was tried. ``seen``: the next change of places; ``sure_at``: the ledger's last one.

    ``regrouped``: as the ledger counts it. ``matchers``: pods that rules and preferences of its members look at; None:
    all pods, as for soft spread. ``usable``: a byte a row, 1 where a member passed the sums. ``needs``: of each class.

    For a gang whose members have rules no change has a direction that can't help: a node that lost its room may send
    the first member elsewhere, where all fit.
    """

    matchers: tuple[Matcher, ...] | None
    needs: tuple[Needs, ...]
    seen: int
    regrouped: int
    sure_at: int
    usable: bytes

    def is_current(self, ledger: Ledger, places: PodPlaces | None) -> bool:
        """Whether no node and no pod has changed since."""
        is_as_seen = places is not None and self.seen == places.number and self.regrouped == ledger.regrouped
        return is_as_seen and self.sure_at == ledger.changes.last

    def still_same(self, ledger: Ledger, places: PodPlaces | None) -> GangWatch | None:
        """The same as of now, if nothing has changed since that a start reads; else None."""
        if places is None or self.regrouped != ledger.regrouped or self._are_pods_others(places):
            return None
        rows = ledger.changes.changed_since(self.sure_at)
        if any(row < len(self.usable) and self.usable[row] for row in rows) or _are_usable(ledger, self.needs, rows):
            return None
        usable = self.usable.ljust(len(ledger.nodes), b"\0")
        last = ledger.changes.last
        return msgspec.structs.replace(self, seen=places.number, sure_at=last, usable=usable)

    def _are_pods_others(self, places: PodPlaces) -> bool:
        """Whether pods came or went that are looked at."""
        if self.matchers is None:
            return self.seen != places.number
        effort = sum(1 + matcher.effort() for matcher in self.matchers)
        changes = places.changes_since(self.seen, MOST_COMPARED // max(1, effort))
        labels_of = places.labels_of
        return changes is None or any(one.takes(pod, labels_of) for pod, _ in changes for one in self.matchers)


def gang_watch_of(ledger: Ledger, places: PodPlaces | None, classes: Collection[PodClass]) -> GangWatch | None:
    """What to watch for a gang that was tried as the ledger has it; None if that takes more than is worth it."""
    if places is None or len(classes) > _MOST_CLASSES:
        return None
    needs = tuple(needs_of(ledger, cls) for cls in classes)
    rows = range(len(ledger.nodes))
    usable = np.zeros(len(rows), np.uint8)
    for each in needs:
        usable[[*passing(ledger, each, rows)]] = 1
    return GangWatch(
        _looked_at(ledger, classes),
        needs,
        places.number,
        ledger.regrouped,
        ledger.changes.last,
        usable.tobytes(),
    )


def _looked_at(ledger: Ledger, classes: Collection[PodClass]) -> tuple[Matcher, ...] | None:
    """The pods that rules look at, or that rank nodes: they may send a member to another node. None: all."""
    found: list[Matcher] = []
    for cls in classes:
        if cls.prefers is not None and cls.prefers.spread:
            return None
        parts = (part.watched for _, part in ledger.filters.parts(cls))
        found += (watched.matcher for watched in parts if watched is not None)
        terms = () if cls.prefers is None else cls.prefers.pod_terms
        found += (TakenByAll((without_key(one.term),), unknown=False) for one in terms)
        found += map(Drawing, cls.drawn_by)
    return tuple(dict.fromkeys(found))


def _are_usable(ledger: Ledger, needs: Iterable[Needs], rows: Sequence[int]) -> bool:
    resources = len(ledger.table.resources)
    as_of_today = (each if each.resources == resources else needs_of(ledger, each.cls) for each in needs)
    return any(passing(ledger, each, rows) for each in as_of_today)
