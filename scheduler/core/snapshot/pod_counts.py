"""Counts of pods on nodes, as a decision has placed and evicted them so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.pod_rule import NO_DOMAIN, Bools, Counted, Domains, Ints, Matcher
from scheduler.core.filters.pod_terms import LabelsOf
from scheduler.core.model.records import ANYWHERE, Constraints, PodRecord
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_numbers import Numbering
from scheduler.core.nodes.pod_columns import COMPARISONS_PER_OPERATION
from scheduler.core.nodes.pod_places import PodPlaces

_SORTED_PER_OPERATION: Final = 20


@dataclass(slots=True)
class _View:
    """Pods by node. ``seen``: how many moves are counted."""

    per_node: Ints
    seen: int


@dataclass(slots=True)
class _Sums:
    """Pods by domain, on nodes that count; None: all."""

    per_domain: Ints
    seen: int
    counted: Bools | None


class PodCounts:
    """What ``PodPlaces`` counts, by position, with the moves of a decision on top.

    A move that is taken back is one more move, in the other direction: so a count is right at any time, and costs what
    has happened since it was asked last.
    """

    __slots__ = (
        "_domains",
        "_effort",
        "_ledger",
        "_members",
        "_moves",
        "_order",
        "_places",
        "_position_of",
        "_spent",
        "_sums",
        "_there",
        "_views",
    )

    def __init__(self, places: PodPlaces, ledger: Ledger, order: Ints | slice, position_of: Mapping[str, int]) -> None:
        self._places = places
        self._ledger = ledger
        self._order = order
        self._position_of = position_of
        self._moves: list[tuple[PodRecord, int, int]] = []
        self._views: dict[Matcher, _View] = {}
        self._domains: dict[str, Domains] = {}
        #: Of a label: positions by domain, and where each domain begins.
        self._members: dict[str, tuple[Ints, Ints]] = {}
        self._sums: dict[tuple[Matcher, str, Counted | None], _Sums] = {}
        self._there: dict[tuple[str, Counted], Bools] = {}
        self._effort, self._spent = 0, self._spent_by_others

    def move(self, pod: PodRecord, position: int, by: int) -> None:
        """A pod comes to a node (1) or leaves it (-1)."""
        self._moves.append((pod, position, by))

    @property
    def moved(self) -> int:
        """How many moves there were."""
        return len(self._moves)

    def spend(self, operations: int) -> None:
        """Asking by these counts has cost this."""
        self._effort += operations

    def take_effort(self) -> int:
        """What it took to count since this was asked last, in operations of about a microsecond."""
        effort, self._effort = self._effort + self._spent_by_others - self._spent, 0
        self._spent = self._spent_by_others
        return effort

    @property
    def _spent_by_others(self) -> int:
        return self._ledger.effort_spent + self._ledger.numbers.effort_spent + self._places.effort_spent

    @property
    def labels_of(self) -> LabelsOf:
        """Labels of namespaces."""
        return self._places.labels_of

    def per_node(self, matcher: Matcher) -> Ints:
        """How many pods of those that a matcher takes are on each node."""
        view = self._views.get(matcher)
        if view is None:
            view = self._views[matcher] = _View(self._places.at_positions(matcher, self._position_of), 0)
        for pod, position, by in self._moves_from(view.seen, matcher):
            if matcher.takes(pod, self.labels_of):
                view.per_node[position] += by
        view.seen = len(self._moves)
        return view.per_node

    def _moves_from(self, seen: int, matcher: Matcher) -> list[tuple[PodRecord, int, int]]:
        if seen == len(self._moves):
            return []
        moves = self._moves[seen:]
        self._effort += len(moves) * matcher.effort() // COMPARISONS_PER_OPERATION
        return moves

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
            starts = np.searchsorted(domains.of[by_domain], np.arange(domains.count + 1))
            self._effort += len(domains.of) // _SORTED_PER_OPERATION
            known = self._members[key] = by_domain, starts
        by_domain, starts = known
        return by_domain[starts[domain] : starts[domain + 1]]

    def in_domains(self, matcher: Matcher, key: str, counted: Counted | None = None) -> Ints:
        """How many of these pods are in each domain of a label, on nodes that count."""
        domains, known = self.domains(key), self._sums.get((matcher, key, counted))
        if known is None:
            known = self._sums[matcher, key, counted] = self._summed(matcher, domains, counted)
        for pod, position, by in self._moves_from(known.seen, matcher):
            domain = int(domains.of[position])
            is_counted = domain != NO_DOMAIN and (known.counted is None or known.counted[position])
            if is_counted and matcher.takes(pod, self.labels_of):
                known.per_domain[domain] += by
        known.seen = len(self._moves)
        return known.per_domain

    def _summed(self, matcher: Matcher, domains: Domains, counted: Counted | None) -> _Sums:
        amounts = self.per_node(matcher)
        nodes = None if counted is None else counted.nodes(self)
        return _Sums(domains.sums(amounts if nodes is None else np.where(nodes, amounts, 0)), len(self._moves), nodes)

    def are_there(self, key: str, counted: Counted) -> Bools:
        """Domains of a label that have a node that counts."""
        known = self._there.get((key, counted))
        if known is None:
            known = self._there[key, counted] = self.domains(key).sums(counted.nodes(self).astype(np.int64)) > 0
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
