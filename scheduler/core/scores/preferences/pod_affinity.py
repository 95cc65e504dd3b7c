"""Preferred affinity and anti-affinity between pods, the pod's own and others' (InterPodAffinity).

A pod counts in its node's domain of a term's key: for each of the pod's own terms that takes it, and for each of its
own terms that takes the pod. Affinity adds the term's weight, anti-affinity takes it off. Required affinity of others
counts with a weight of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

import numpy as np

from scheduler.core.filters.pod_rule import Drawing, Matcher, TakenByAll, Tally, without_key
from scheduler.core.model.pod_class import PodClass, WeightedTerm, Weights
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preference import MOST, Changed, Seen


class PodAffinity:
    """A node without a term's label gets nothing by that term."""

    name = "pod-affinity"
    depends_on_pods = True

    def weight(self, weights: Weights) -> int:
        """As set."""
        return weights.pod_affinity

    def scorer(self, cls: PodClass, seen: Seen) -> Beside | None:
        """From the least sum of nodes that fit to the largest."""
        own = () if cls.prefers is None else cls.prefers.pod_terms
        return Beside(own, cls.drawn_by, seen) if own or cls.drawn_by else None


class _Label:
    """What pods add up to in each domain of a label: those of some tallies count with a weight each."""

    def __init__(self) -> None:
        self._counted: list[tuple[Tally, int]] = []
        #: By domain; and of each tally, how many changes are in it.
        self._sums: Int64s = _NOTHING
        self._seen: list[int] = []

    def __len__(self) -> int:
        """How many tallies there are."""
        return len(self._counted)

    def count(self, tally: Tally, weight: int) -> None:
        """Count the pods of one more."""
        self._counted.append((tally, weight))

    def added_up(self) -> Int64s:
        """The sums of all domains. Not to be written."""
        for tally, _ in self._counted:
            tally.catch_up()
        self._seen = [len(tally.changed) for tally, _ in self._counted]
        self._sums = reduce(np.add, [tally.numbers * weight for tally, weight in self._counted])
        return self._sums

    def changes(self) -> dict[int, int] | None:
        """Domains whose sum is another one, and by how much, since this was asked last; None: too many."""
        domains: dict[int, None] = {}
        for number, (tally, _) in enumerate(self._counted):
            tally.catch_up()
            seen, self._seen[number] = self._seen[number], len(tally.changed)
            for domain in tally.changed[seen:]:
                domains[domain] = None
        if len(domains) > _MOST_APART:
            return None
        changes: dict[int, int] = {}
        for domain in domains:
            now = 0
            for tally, weight in self._counted:
                now += tally.numbers.item(domain) * weight
            changes[domain] = now - self._sums.item(domain)
            self._sums[domain] = now
        return changes


class Beside:
    """Scores by the pods in the domains of nodes. ``own``: terms of the pod; ``drawn_by``: of others."""

    def __init__(self, own: Iterable[WeightedTerm], drawn_by: Iterable[WeightedTerm], seen: Seen) -> None:
        self._seen = seen
        self._labels: dict[str, _Label] = {}
        for one in own:
            self._count(one, TakenByAll((without_key(one.term),), unknown=False))
        for one in drawn_by:
            self._count(one, Drawing(one))
        self.asked = sum(map(len, self._labels.values()))
        #: What each node's domains add up to; empty until it is made.
        self._sums: Int64s = _NOTHING
        #: Of nodes that fit the least and the largest, and how many have them.
        self._fits: Bools = np.zeros(0, np.bool_)
        self._least = self._largest = self._at_least = self._at_largest = 0

    def _count(self, one: WeightedTerm, matcher: Matcher) -> None:
        key = one.term.key
        self._labels.setdefault(key, _Label()).count(self._seen.tally(matcher, key), one.weight)

    def scores(self, fits: Bools) -> Int64s:
        """As parts of what lies between the least and the largest sum."""
        self._fits, sums = fits, self._added_up()
        self._least, self._largest = (
            int(np.where(fits, sums, _END).min()),
            int(np.where(fits, sums, -_END).max()),
        )
        self._at_least = int(np.count_nonzero(fits & (sums == self._least)))
        self._at_largest = int(np.count_nonzero(fits & (sums == self._largest)))
        return self._parts(sums)

    @property
    def key(self) -> None:
        """Sums of several labels, as a rule, and of hosts."""
        return

    def by_domain(self, fits: Bools) -> Int64s:
        """There is no label."""
        raise NotImplementedError

    def again(self) -> Changed | None:
        """Those of a few domains, as long as the least and the largest sum of all are the same."""
        before = self._change()
        if before is None:
            return None
        now = {position: self._sums.item(position) for position in before}
        for position, is_now in now.items():
            if self._fits[position]:
                if not self._least <= is_now <= self._largest:
                    return None
                was = before[position]
                self._at_least += (is_now == self._least) - (was == self._least)
                self._at_largest += (is_now == self._largest) - (was == self._largest)
        if not self._at_least or not self._at_largest:
            return None
        return {position: self._part(is_now) for position, is_now in now.items()}

    def _parts(self, sums: Int64s) -> Int64s:
        least, largest = self._least, self._largest
        if least == largest:
            return np.zeros(len(sums), np.int64)
        # In floating point, in this order: 100 * (29 / 100) is 28.999..., which counts as 28.
        found: Int64s = (MOST * ((sums - least) / (largest - least))).astype(np.int64)
        return found

    def _part(self, one: int) -> int:
        """As ``_parts``, of one node: by the same arithmetic, as both are IEEE 754."""
        least, largest = self._least, self._largest
        return 0 if least == largest else int(MOST * ((one - least) / (largest - least)))

    def _added_up(self) -> Int64s:
        """What each node's domains add up to. Domains of one label are added up before nodes are looked at."""
        if not len(self._sums) or self._change() is None:
            by_label = [(self._seen.domains(key), label.added_up()) for key, label in self._labels.items()]
            self._sums = reduce(np.add, [domains.at_nodes(sums) for domains, sums in by_label])
        return self._sums

    def _change(self) -> dict[int, int] | None:
        """Add up again what has changed; return sums before by position; None: too many have changed."""
        before: dict[int, int] = {}
        for key, label in self._labels.items():
            changes = label.changes()
            if changes is None:
                self._sums = _NOTHING
                return None
            for domain, by in changes.items():
                members = self._seen.members(key, domain) if by else _NOTHING
                if len(before) + len(members) > _MOST_APART:
                    self._sums = _NOTHING
                    return None
                for position in members.tolist():
                    was = self._sums.item(position)
                    before.setdefault(position, was)
                    self._sums[position] = was + by
        return before


#: Above any sum.
_END: Final = 1 << 60
#: If there are more domains or nodes whose sum is another one, all are looked at.
_MOST_APART: Final = 16
_NOTHING: Final = np.zeros(0, np.int64)
