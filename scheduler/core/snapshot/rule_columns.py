"""The answers of all rules about other pods for one class, brought up to date when something was placed since.

A placement changes the answer of a part (filters/pod_rule.py) in few domains. So it is known per node how many parts
close it, and only the nodes of such domains are looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.core.filters.pod_rule import Bools, Ints, Part
from scheduler.core.filters.pod_terms import effort_of_term
from scheduler.core.filters.registry import NO_NODE, OK
from scheduler.core.filters.requirements import effort_of_all
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.pod_columns import COMPARISONS_PER_OPERATION
from scheduler.core.nodes.table import Int8s
from scheduler.core.snapshot.pod_counts import PodCounts
from scheduler.core.snapshot.statement import Statement

#: What it takes to ask a term or a constraint again, in operations of about a microsecond, and one for so many nodes.
_ASKING: Final = 10
_NODES_PER_OPERATION: Final = 500
#: If more domains than these have changed, all nodes are looked at.
_MOST_APART: Final = 8


@dataclass(slots=True)
class _Column:
    """A part of a rule. ``number``: the rule's. ``closed``: its answer, as it is counted; None: not asked yet."""

    number: int
    part: Part
    closed: Bools | None = None

    def at_nodes(self, closed: Bools, counts: PodCounts) -> Bools:
        """An answer by position."""
        if (key := self.part.key) is None:
            return closed
        found: Bools = np.append(closed, self.part.closes_others)[counts.domains(key).of]  # NO_DOMAIN is the last one
        return found


class RuleColumns:
    """Which nodes are open for a class, by position, as far as other pods are concerned."""

    __slots__ = ("_at", "_closing", "_columns", "_cost", "_counts", "_open")

    def __init__(self, statement: Statement, cls: PodClass) -> None:
        self._counts = statement.counts
        self._columns = [_Column(number, part) for number, part in statement.filters.parts(cls)]
        #: How many parts close each node.
        self._closing: Ints = np.zeros(len(statement.nodes), np.int64)
        self._open: Bools = np.ones(len(statement.nodes), np.bool_)
        self._cost = _asked(cls) * (_ASKING + len(statement.nodes) // _NODES_PER_OPERATION) + _compared_with_itself(cls)
        self._at = -1

    @property
    def open(self) -> Bools:
        """Nodes where no rule is against the class now. Not to be written, and good until it is asked again."""
        if self._at != self._counts.moved:
            self._counts.spend(self._cost)
            for column in self._columns:
                self._ask(column)
            self._at = self._counts.moved
        return self._open

    def _ask(self, column: _Column) -> None:
        before = column.closed
        if before is not None and column.part.watched is None:
            return
        now = column.closed = column.part.closed(self._counts)
        if before is None:
            self._closing += column.at_nodes(now, self._counts)
            np.equal(self._closing, 0, out=self._open)
            return
        changed = (now != before).nonzero()[0]
        if not len(changed):
            return
        if (key := column.part.key) is None:
            self._add(changed, np.where(now[changed], 1, -1))
        elif len(changed) > _MOST_APART:
            self._closing += column.at_nodes(now, self._counts)
            self._closing -= column.at_nodes(before, self._counts)
            np.equal(self._closing, 0, out=self._open)
        else:
            for domain in changed.tolist():
                self._add(self._counts.members(key, domain), 1 if now[domain] else -1)

    def _add(self, positions: Ints, by: Ints | int) -> None:
        self._closing[positions] += by
        self._open[positions] = self._closing[positions] == 0

    def narrowed(self, judged: Int8s) -> Int8s:
        """Judgements of nodes with those of the rules: of several the first that is reported."""
        if self.open.all():
            return judged
        found = judged.copy()
        for column in self._columns:
            if column.closed is not None:
                closed = column.at_nodes(column.closed, self._counts)
                found[closed & (found != NO_NODE) & ((found == OK) | (found > column.number))] = column.number
        return found


def _asked(cls: PodClass) -> int:
    """How many terms, constraints, sets of ports and of disks are looked at on all nodes."""
    if (own := cls.rules) is None:
        return len(cls.taken_by)
    terms = (*own.affinity, *own.anti_affinity, *own.spread, *cls.taken_by)
    return len(terms) + bool(own.ports) + bool(own.disks)


def _compared_with_itself(cls: PodClass) -> int:
    """What it takes to see whether a class takes itself, which its spread and its affinity ask."""
    if (own := cls.rules) is None:
        return 0
    by_spread = sum(effort_of_all(spread.selector or ()) for spread in own.spread)
    return (by_spread + sum(map(effort_of_term, own.affinity))) // COMPARISONS_PER_OPERATION


def columns_of(statement: Statement, cls: PodClass) -> RuleColumns | None:
    """The answers for a class; None if it asks nothing of other pods, and none keeps it off."""
    return RuleColumns(statement, cls) if cls.rules is not None or cls.taken_by else None
