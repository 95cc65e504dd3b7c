"""Counts of pods on nodes, as a decision has placed and evicted them so far.

Each moved pod is compared with a matcher once; a move that is taken back is one more move, in the other direction. How
many pods are in each domain of a label is kept up to date pod by pod, with the domains that have changed. Nodes that
have the same domains of several labels are a group: what depends on these alone is known by group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.pod_rule import (
    COMPARISONS_PER_OPERATION,
    NO_DOMAIN,
    Bools,
    Counted,
    Domains,
    Ints,
    LabelsOf,
    Matcher,
    There,
)
from scheduler.core.model.pod_class import ANYWHERE, Constraints
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_numbers import Numbering
from scheduler.core.nodes.pod_places import PodPlaces


class Moves:
    """All moves, in order: a pod, the position of a node, and 1 if the pod comes or -1 if it leaves.

    ``compared``: how many comparisons of moved pods with selectors were made.
    """

    __slots__ = ("_taken", "all", "compared", "labels_of")

    def __init__(self, labels_of: LabelsOf) -> None:
        self.labels_of = labels_of
        self.all: list[tuple[PodRecord, int, int]] = []
        self.compared = 0
        self._taken: dict[Matcher, Taken] = {}

    def taken_by(self, matcher: Matcher) -> Taken:
        """Those of the pods that a matcher takes; one object for equal matchers."""
        known = self._taken.get(matcher)
        if known is None:
            known = self._taken[matcher] = Taken(matcher, self)
        return known


class Taken:
    """Moves of the pods that one matcher takes."""

    __slots__ = ("_effort", "_known", "_matcher", "_moves", "_seen")

    def __init__(self, matcher: Matcher, moves: Moves) -> None:
        self._matcher = matcher
        self._moves = moves
        self._effort = matcher.effort()
        self._known: list[tuple[int, int]] = []
        #: How many of all moves were compared.
        self._seen = 0

    def up_to_now(self) -> list[tuple[int, int]]:
        """Positions, each with 1 or -1, in order. Not to be written."""
        moves, seen = self._moves, self._seen
        if seen < len(moves.all):
            takes, labels_of = self._matcher.takes, moves.labels_of
            for pod, at, by in moves.all[seen:]:  # one move, as a rule
                if takes(pod, labels_of):
                    self._known.append((at, by))
            self._seen = len(moves.all)
            moves.compared += (self._seen - seen) * self._effort
        return self._known


_NOBODY: Final = 0


class Tally:
    """Pods by domain, on nodes that count.

    ``numbers``: by number of the domain; not to be written. ``total``: in all of them. ``changed``: domains in which a
    pod has come or gone, in order, each as often as that was. ``taken``: how many of the moves of such pods are
    counted.
    """

    __slots__ = ("_by_number", "_counted", "_moves", "_of", "_there", "changed", "numbers", "taken", "total")

    def __init__(self, moves: Taken, numbers: Ints, of: Ints | None, counted: Bools | None, *, taken: int) -> None:
        """``of``: the domain of each position; None: each is one. ``counted``: positions that count; None: all."""
        self.numbers = numbers
        self.total = int(numbers.sum())
        self.changed: list[int] = []
        self.taken = taken
        self._moves = moves
        self._of = of
        self._counted = counted
        #: Of domains that are looked at: how many have a number of pods.
        self._there: Bools | None = None
        self._by_number: dict[int, int] = {}

    def catch_up(self) -> None:
        """Count what was moved since."""
        moves = self._moves.up_to_now()
        if self.taken < len(moves):
            for position, by in moves[self.taken :]:
                self._move(position, by)
            self.taken = len(moves)

    def _move(self, position: int, by: int) -> None:
        """Pods come to a node, or leave it."""
        if self._counted is not None and not self._counted.item(position):
            return
        domain = position if self._of is None else self._of.item(position)
        if domain == NO_DOMAIN:
            return
        before = self.numbers.item(domain)
        self.numbers[domain] = now = before + by
        self.total += by
        self.changed.append(domain)
        if self._there is not None and self._there.item(domain):
            by_number = self._by_number
            by_number[now] = by_number.get(now, 0) + 1
            if by_number[before] == 1:
                del by_number[before]
            else:
                by_number[before] -= 1

    def fewest(self, there: Bools) -> int:
        """The fewest pods of those of some domains, at least one; asked of the same ones each time."""
        if self._there is not there:
            self._there = there
            numbers, domains = np.unique(self.numbers[there], return_counts=True)
            self._by_number = dict(zip(numbers.tolist(), domains.tolist(), strict=True))
        return min(self._by_number, default=_NOBODY)


#: A label is coarse if it has this many nodes for each domain; and the most groups.
_NODES_PER_DOMAIN: Final = 32
_MOST_GROUPS: Final = 256


class NodeGroups:
    """``of``: the group of each position. ``order``: positions by group, ascending in each; None: there is one group.

    ``starts``: where in that order each group begins, and the end. ``at``: where in it each position is.
    """

    __slots__ = ("_domains", "_in_domain", "at", "count", "of", "order", "starts")

    def __init__(self, nodes: int, domains: Mapping[str, Domains]) -> None:
        """``domains``: of the labels by which nodes are grouped."""
        self.order: Ints | None = None
        self.of: Ints = np.zeros(nodes, np.int64)
        self.at: Ints | None = None
        self.count = 1
        for each in domains.values():
            codes = self.of * (each.count + 1) + each.of + 1
            _, self.of = np.unique(codes, return_inverse=True)
            self.count = int(self.of.max()) + 1 if nodes else 1
        self.starts: list[int] = [0, nodes]
        if domains:
            order = np.argsort(self.of, kind="stable")
            self.starts = np.searchsorted(self.of[order], np.arange(self.count + 1)).tolist()
            self.order, self.at = order, np.empty(nodes, np.int64)
            self.at[order] = np.arange(nodes)
        #: Of each label the domain of each group.
        self._domains: dict[str, Ints] = {}
        for key, each in domains.items():
            of_group = np.zeros(self.count, np.int64)
            of_group[self.of] = each.of
            self._domains[key] = of_group
        #: The groups of a domain, as far as that was asked.
        self._in_domain: dict[tuple[str, int], Ints] = {}

    def has(self, key: str) -> bool:
        """Whether the nodes of a group are in one domain of a label, or all in none."""
        return key in self._domains

    def domains(self, key: str) -> Ints:
        """The domain of each group."""
        return self._domains[key]

    def in_domain(self, key: str, domain: int) -> Ints:
        """The groups whose nodes are in a domain."""
        known = self._in_domain.get((key, domain))
        if known is None:
            known = self._in_domain[key, domain] = np.flatnonzero(self._domains[key] == domain)
        return known


def coarse(keys: Iterable[str], domains: Mapping[str, Domains], nodes: int) -> tuple[str, ...]:
    """Those of some labels by which nodes are grouped: there are few groups, and many nodes in each."""
    found: list[str] = []
    groups = 1
    for key in sorted(dict.fromkeys(keys), key=lambda key: (domains[key].count, key)):
        groups *= domains[key].count + 1
        if groups > _MOST_GROUPS or nodes < domains[key].count * _NODES_PER_DOMAIN:
            break
        found.append(key)
    return tuple(found)


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
