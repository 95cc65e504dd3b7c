"""The answers of all rules about other pods for one class, asked again when something was placed since."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.core.filters.pod_rule import Bools, PodRule
from scheduler.core.filters.pod_terms import effort_of_term
from scheduler.core.filters.registry import NO_NODE, OK
from scheduler.core.filters.requirements import effort_of_all
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.pod_places import COMPARISONS_PER_OPERATION
from scheduler.core.nodes.table import Int8s
from scheduler.core.snapshot.statement import Statement

#: What it takes to ask a term or a constraint again, in operations of about a microsecond, and one for so many nodes.
_ASKING: Final = 10
_NODES_PER_OPERATION: Final = 500


class RuleColumns:
    """Which nodes are open for a class, by position, as far as other pods are concerned."""

    __slots__ = ("_at", "_closed", "_cls", "_cost", "_counts", "_open", "_rules")

    def __init__(self, statement: Statement, cls: PodClass) -> None:
        numbers = statement.filters.numbers
        self._cls = cls
        self._counts = statement.counts
        self._rules = [(numbers[each.kind], each) for each in statement.filters.all if isinstance(each, PodRule)]
        self._closed: list[tuple[int, Bools]] = []
        self._open: Bools = np.ones(len(statement.nodes), np.bool_)
        self._cost = _asked(cls) * (_ASKING + len(statement.nodes) // _NODES_PER_OPERATION) + _compared_with_itself(cls)
        self._at = -1

    @property
    def open(self) -> Bools:
        """Nodes where no rule is against the class now. Not to be written."""
        if self._at != self._counts.moved:
            self._counts.spend(self._cost)
            answers = ((number, each.closed(self._cls, self._counts)) for number, each in self._rules)
            self._closed = [(number, closed) for number, closed in answers if closed is not None]
            closed_by_any = [closed for _, closed in self._closed]
            if closed_by_any:
                self._open = ~np.logical_or.reduce(closed_by_any)
            self._at = self._counts.moved
        return self._open

    def narrowed(self, judged: Int8s) -> Int8s:
        """Judgements of nodes with those of the rules: of several the first that is reported."""
        if self.open.all():
            return judged
        found = judged.copy()
        for number, closed in self._closed:
            found[closed & (found != NO_NODE) & ((found == OK) | (found > number))] = number
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
