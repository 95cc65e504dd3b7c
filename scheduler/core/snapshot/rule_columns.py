"""The answers of all rules about other pods for one class, brought up to date when something was placed since.

A placement changes the answer of a part (filters/pod_rule.py) in few domains. Of labels with many nodes in each domain
that is known by group of nodes (pod_counts.py), so that a zone is closed at once. Of all others it is known per node
how many parts close it, and only the nodes of domains whose answer is another one are looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.filters.node_affinity import effort_of_all
from scheduler.core.filters.pod_rule import COMPARISONS_PER_OPERATION, Bools, Ints, Limits, Part
from scheduler.core.filters.registry import NO_NODE, OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.table import Int8s
from scheduler.core.snapshot.pod_counts import PodCounts, Tally
from scheduler.core.snapshot.statement import Statement

#: What it takes to ask a term or a constraint for the first time, in operations of about a microsecond; again, if one
#: of its pods has come or gone, and one operation in any case.
_ASKING: Final = 10
_ASKING_AGAIN: Final = 3
#: One operation for each this many nodes that are looked at one by one, and all at once.
_NODES_PER_OPERATION: Final = 50
_NODES_AT_ONCE: Final = 250
#: If more domains than these have changed, all nodes are looked at.
_MOST_APART: Final = 8


@dataclass(slots=True)
class _Column:
    """A part of a rule. ``number``: the rule's.

    ``closed``: its answer by domain, as it is counted; the last one is of nodes without the label. ``taken``, ``seen``:
    how many moves were in the tally, and how many changes of domains.
    """

    number: int
    part: Part
    tally: Tally | None
    limits: Limits
    closed: Bools
    taken: int = 0
    seen: int = 0
    #: Of a coarse label, the domain of each group.
    of_groups: Ints | None = None

    def at_nodes(self, counts: PodCounts) -> Bools:
        """The answer by position."""
        key = self.part.key
        found: Bools = self.closed if key is None else self.closed[counts.domains(key).of]
        return found


class Flipped(NamedTuple):
    """Positions of nodes that may have been opened or closed: one by one, and those of domains."""

    single: list[int]
    several: list[Ints]


class RuleColumns:
    """Which nodes are open for a class, by position, as far as other pods are concerned.

    ``groups``: nodes by coarse labels. ``open_nodes``: those that no part of another label closes, by position.
    ``closing_groups``: how many parts of coarse labels close each group. None of them is to be written.
    """

    __slots__ = (
        "_at",
        "_closing",
        "_columns",
        "_counts",
        "_flipped",
        "_open",
        "closing_groups",
        "groups",
        "open_nodes",
    )

    def __init__(self, statement: Statement, cls: PodClass) -> None:
        self._counts = counts = statement.counts
        parts = statement.filters.parts(cls)
        self.groups = counts.groups(dict.fromkeys(part.key for _, part in parts if part.key is not None))
        nodes = len(statement.nodes)
        self._columns = [self._first(number, part, nodes) for number, part in parts]
        asked = sum(column.tally is not None for column in self._columns)
        counts.spend(asked * (_ASKING + nodes // _NODES_AT_ONCE) + _compared_with_itself(cls))
        #: How many parts close each node, or each group.
        self._closing: Ints = np.zeros(nodes, np.int64)
        self.closing_groups: Ints = np.zeros(self.groups.count, np.int64)
        for column in self._columns:
            self._count(column)
        self.open_nodes: Bools = self._closing == 0
        self._at = counts.moved
        self._flipped: Flipped | None = Flipped([], [])
        self._open: Bools | None = None

    def _first(self, number: int, part: Part, nodes: int) -> _Column:
        asked = part.counts
        others = np.zeros(0, np.bool_) if part.key is None else np.full(1, part.closes_others)
        if asked is None:
            domains = nodes if part.key is None else self._counts.domains(part.key).count
            return _Column(number, part, None, Limits(0, 0), np.append(np.zeros(domains, np.bool_), others))
        tally = self._counts.tally(*asked)
        limits = part.limits(self._counts, tally)
        closed = np.append(_out(tally.numbers, limits), others)
        return _Column(number, part, tally, limits, closed, tally.taken, len(tally.changed))

    def _count(self, column: _Column) -> None:
        key = column.part.key
        if key is not None and self.groups.has(key):
            column.of_groups = self.groups.domains(key)
            self.closing_groups += column.closed[column.of_groups]
        else:
            self._closing += column.at_nodes(self._counts)

    @property
    def open(self) -> Bools:
        """Nodes where no rule is against the class now. Not to be written, and good until it is asked again."""
        self.catch_up()
        if self._open is None:
            is_open = self.closing_groups == 0
            self._open = self.open_nodes if is_open.all() else self.open_nodes & is_open[self.groups.of]
        return self._open

    def flipped(self) -> Flipped | None:
        """Nodes for which ``open_nodes`` may be another since this was asked last; None: any."""
        self.catch_up()
        flipped, self._flipped = self._flipped, Flipped([], [])
        return flipped

    def catch_up(self) -> None:
        """Ask all parts again, if pods have come or gone."""
        counts = self._counts
        if self._at == counts.moved:
            return
        self._at = counts.moved
        asked = 0
        for column in self._columns:
            tally = column.tally
            if tally is None:
                continue
            tally.catch_up()
            if tally.taken != column.taken:
                asked += 1
                column.taken = tally.taken
                self._ask(column, tally)
        counts.spend(len(self._columns) + asked * _ASKING_AGAIN)

    def _ask(self, column: _Column, tally: Tally) -> None:
        changed, column.seen = tally.changed[column.seen :], len(tally.changed)
        limits, numbers, closed = column.part.limits(self._counts, tally), tally.numbers, column.closed
        if limits == column.limits:
            least, most = limits
            is_closed, has = closed.item, numbers.item
            apart = changed if len(changed) == 1 else dict.fromkeys(changed)
            flips = [each for each in apart if is_closed(each) == (least <= has(each) <= most)]
        else:
            column.limits = limits
            flips = (_out(numbers, limits) != closed[: len(numbers)]).nonzero()[0].tolist()
        if flips:
            self._open = None
            self._flip(column, flips)

    def _flip(self, column: _Column, domains: list[int]) -> None:
        """Domains, or nodes, that were open are closed now, and the other way round."""
        key, closed = column.part.key, column.closed
        if column.of_groups is None and len(domains) > _MOST_APART:
            self._closing -= column.at_nodes(self._counts)
            closed[domains] ^= True
            self._closing += column.at_nodes(self._counts)
            np.equal(self._closing, 0, out=self.open_nodes)
            self._flipped = None
            self._counts.spend(len(self._closing) // _NODES_AT_ONCE)
            return
        for domain in domains:
            is_closed = closed[domain] = not closed.item(domain)
            by = 1 if is_closed else -1
            if key is None:
                self._close_node(domain, by)
            elif column.of_groups is not None:
                self._close_groups(self.groups.in_domain(key, domain), by)
            else:
                self._close(self._counts.members(key, domain), by)

    def _close_groups(self, groups: Ints, by: int) -> None:
        """One part more, or one fewer, closes these groups."""
        if len(groups) == 1:
            self.closing_groups[groups.item(0)] += by
        else:
            self.closing_groups[groups] += by

    def _close(self, positions: Ints, by: int) -> None:
        """One part more, or one fewer, closes these nodes."""
        if len(positions) == 1:
            self._close_node(positions.item(0), by)
            return
        self._closing[positions] = closing = self._closing[positions] + by
        self.open_nodes[positions] = closing == 0
        if self._flipped is not None:
            self._flipped.several.append(positions)
        self._counts.spend(len(positions) // _NODES_PER_OPERATION)

    def _close_node(self, position: int, by: int) -> None:
        self._closing[position] = closing = self._closing.item(position) + by
        self.open_nodes[position] = not closing
        if self._flipped is not None:
            self._flipped.single.append(position)

    def narrowed(self, judged: Int8s) -> Int8s:
        """Judgements of nodes with those of the rules: of several the first that is reported."""
        if self.open.all():
            return judged
        found = judged.copy()
        for column in self._columns:
            closed = column.at_nodes(self._counts)
            found[closed & (found != NO_NODE) & ((found == OK) | (found > column.number))] = column.number
        return found


def _out(numbers: Ints, limits: Limits) -> Bools:
    """Domains, or nodes, with too few pods or too many."""
    least, most = limits
    if not least:
        found: Bools = numbers > most
        return found
    return (numbers < least) | (numbers > most)


def _compared_with_itself(cls: PodClass) -> int:
    """What it takes to see whether a class takes itself, which its spread asks."""
    if (own := cls.rules) is None:
        return 0
    return sum(effort_of_all(spread.selector or ()) for spread in own.spread) // COMPARISONS_PER_OPERATION


def columns_of(statement: Statement, cls: PodClass) -> RuleColumns | None:
    """The answers for a class; None if it asks nothing of other pods, and none keeps it off."""
    return RuleColumns(statement, cls) if cls.rules is not None or cls.taken_by else None
