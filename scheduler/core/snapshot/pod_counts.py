"""Counts of pods on nodes, as a decision has placed and evicted them so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.pod_rule import (
    COMPARISONS_PER_OPERATION,
    Bools,
    Counted,
    Domains,
    Ints,
    Matcher,
    There,
)
from scheduler.core.filters.pod_terms import LabelsOf
from scheduler.core.model.pod_class import ANYWHERE, Constraints
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_numbers import Numbering
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.snapshot.moves import Moves
from scheduler.core.snapshot.node_groups import NodeGroups, coarse
from scheduler.core.snapshot.tally import Tally

_SORTED_PER_OPERATION: Final = 20


class PodCounts:
    """What ``PodPlaces`` counts, by position, with the moves of a decision on top.

    A move that is taken back is one more move, in the other direction: so a count is right at any time, and costs what
    has happened since it was asked last.
    """

    __slots__ = (
        "_domains",
        "_effort",
        "_groups",
        "_ledger",
        "_members",
        "_moves",
        "_order",
        "_places",
        "_position_of",
        "_spent",
        "_tallies",
        "_there",
    )

    def __init__(self, places: PodPlaces, ledger: Ledger, order: Ints | slice, position_of: Mapping[str, int]) -> None:
        self._places = places
        self._ledger = ledger
        self._order = order
        self._position_of = position_of
        self._moves = Moves(places.labels_of)
        self._tallies: dict[tuple[Matcher, str | None, Counted | None], Tally] = {}
        self._domains: dict[str, Domains] = {}
        self._groups: dict[tuple[str, ...], NodeGroups] = {}
        #: Of a label: positions by domain, and where each domain begins.
        self._members: dict[str, tuple[Ints, list[int]]] = {}
        self._there: dict[tuple[str, Counted], There] = {}
        #: What was spent beside comparisons of moved pods, and what others had spent before.
        self._effort = 0
        self._spent = self._spent_by_others

    def move(self, pod: PodRecord, position: int, by: int) -> None:
        """A pod comes to a node (1) or leaves it (-1)."""
        self._moves.all.append((pod, position, by))

    @property
    def moved(self) -> int:
        """How many moves there were."""
        return len(self._moves.all)

    def spend(self, operations: int) -> None:
        """Asking by these counts has cost this."""
        self._effort += operations

    def take_effort(self) -> int:
        """What it took to count since this was asked last, in operations of about a microsecond."""
        compared, self._moves.compared = divmod(self._moves.compared, COMPARISONS_PER_OPERATION)
        effort, self._effort = compared + self._effort + self._spent_by_others - self._spent, 0
        self._spent = self._spent_by_others
        return effort

    @property
    def _spent_by_others(self) -> int:
        return self._ledger.effort_spent + self._ledger.numbers.effort_spent + self._places.effort_spent

    @property
    def labels_of(self) -> LabelsOf:
        """Labels of namespaces."""
        return self._places.labels_of

    def tally(self, matcher: Matcher, key: str | None, counted: Counted | None = None) -> Tally:
        """How many pods of those that a matcher takes are in each domain of a label, on nodes that count.

        Without a label: on each node.
        """
        tally = self._tallies.get((matcher, key, counted))
        if tally is None:
            tally = self._tallies[matcher, key, counted] = self._counted(matcher, key, counted)
        tally.catch_up()
        return tally

    def _counted(self, matcher: Matcher, key: str | None, counted: Counted | None) -> Tally:
        nodes, moves = None if counted is None else counted.nodes(self), self._moves.taken_by(matcher)
        if key is None:
            numbers = self._places.at_positions(matcher, self._position_of)
            return Tally(moves, numbers if nodes is None else np.where(nodes, numbers, 0), None, nodes, taken=0)
        domains = self.domains(key)
        # What was moved is in the numbers already, if they are added up from those of nodes.
        amounts = self.tally(matcher, None)
        numbers = domains.sums(amounts.numbers if nodes is None else np.where(nodes, amounts.numbers, 0))
        return Tally(moves, numbers, domains.of, nodes, taken=amounts.taken)

    def domains(self, key: str) -> Domains:
        """The nodes by a label."""
        known = self._domains.get(key)
        if known is None:
            of, count = self._ledger.domains(key)
            known = self._domains[key] = Domains(of[self._order], count)
        return known

    def members(self, key: str, domain: int) -> Ints:
        """Positions of the nodes in a domain of a label."""
        known = self._members.get(key)
        if known is None:
            domains = self.domains(key)
            by_domain = np.argsort(domains.of, kind="stable")
            starts = np.searchsorted(domains.of[by_domain], np.arange(domains.count + 1)).tolist()
            self._effort += len(domains.of) // _SORTED_PER_OPERATION
            known = self._members[key] = by_domain, starts
        by_domain, starts = known
        return by_domain[starts[domain] : starts[domain + 1]]

    def groups(self, keys: Iterable[str]) -> NodeGroups:
        """The nodes by the coarse ones of these labels."""
        domains = {key: self.domains(key) for key in keys}
        found = coarse(domains, domains, len(self._position_of))
        known = self._groups.get(found)
        if known is None:
            self._effort += len(found) * len(self._position_of) // _SORTED_PER_OPERATION
            known = self._groups[found] = NodeGroups(len(self._position_of), {key: domains[key] for key in found})
        return known

    def are_there(self, key: str, counted: Counted) -> There:
        """Domains of a label that have a node that counts."""
        known = self._there.get((key, counted))
        if known is None:
            are = self.domains(key).sums(counted.nodes(self).astype(np.int64)) > 0
            known = self._there[key, counted] = There(are, int(are.sum()))
        return known

    def admitted(self, filters: tuple[Filter, ...], constraints: Constraints) -> Bools:
        """Nodes that these filters admit."""
        return self._ledger.admitted(filters, constraints)[self._order]

    @property
    def of_pool(self) -> Bools:
        """Nodes of the scheduler's own node pool."""
        return self.admitted(self._ledger.filters.own_pool, ANYWHERE)

    def numbers(self, numbering: Numbering, asked: Hashable) -> Ints:
        """The number of each node for what is asked. Not to be written."""
        return self._ledger.numbers.of(numbering, asked, self._ledger.nodes)[self._order]

    @property
    def has_soft_taints(self) -> bool:
        """Whether a node has a taint PreferNoSchedule."""
        return bool(self._ledger.numbers.soft_tainted)


#: Makes the counts of a decision, for nodes in the order of its statement.
Counting: TypeAlias = "Callable[[Ledger, Ints | slice, Mapping[str, int]], PodCounts]"
