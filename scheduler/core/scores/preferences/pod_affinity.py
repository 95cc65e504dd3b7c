"""Preferred affinity and anti-affinity between pods, the pod's own and others' (InterPodAffinity).

A pod counts in its node's domain of a term's key: for each of the pod's own terms that takes it, and for each of its
own terms that takes the pod. Affinity adds the term's weight, anti-affinity takes it off. Required affinity of others
counts with a weight of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Final

import numpy as np

from scheduler.core.filters.pod_rule import Matcher, Tally
from scheduler.core.filters.pod_terms import Drawing, TakenByAll, without_key
from scheduler.core.model.pod_preferences import WeightedTerm, Weights
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preference import MOST, UNCHANGED, Changed, Seen


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


class Beside:
    """Scores by the pods in the domains of nodes. ``own``: terms of the pod; ``drawn_by``: of others."""

    def __init__(self, own: Iterable[WeightedTerm], drawn_by: Iterable[WeightedTerm], seen: Seen) -> None:
        self._seen = seen
        #: By a label: which pods are counted in its domains, and the weight of each.
        self._by_key: dict[str, list[tuple[Matcher, int]]] = {}
        for one in own:
            matcher = TakenByAll((without_key(one.term),), unknown=False)
            self._by_key.setdefault(one.term.key, []).append((matcher, one.weight))
        for one in drawn_by:
            self._by_key.setdefault(one.term.key, []).append((Drawing(one), one.weight))
        self.asked = sum(map(len, self._by_key.values()))
        #: What each node's domains add up to, and of each label what a domain does; how many changes are in it.
        self._sums: Int64s = np.zeros(0, np.int64)
        self._of_domains: dict[str, Int64s] = {}
        self._changes: list[int] = []
        #: Of nodes that fit the least and the largest, and how many have them.
        self._fits: Bools = np.zeros(0, np.bool_)
        self._least = self._largest = self._at_least = self._at_largest = 0

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
        if not before:
            return UNCHANGED
        positions = np.fromiter(before, np.int64, len(before))
        for position, was in before.items():
            if self._fits[position]:
                now = int(self._sums[position])
                if not self._least <= now <= self._largest:
                    return None
                self._at_least += (now == self._least) - (was == self._least)
                self._at_largest += (now == self._largest) - (was == self._largest)
        if not self._at_least or not self._at_largest:
            return None
        return Changed(positions, self._parts(self._sums[positions]))

    def _parts(self, sums: Int64s) -> Int64s:
        least, largest = self._least, self._largest
        if least == largest:
            return np.zeros(len(sums), np.int64)
        # In floating point, in this order: 100 * (29 / 100) is 28.999..., which counts as 28.
        found: Int64s = (MOST * ((sums - least) / (largest - least))).astype(np.int64)
        return found

    def _added_up(self) -> Int64s:
        """What each node's domains add up to. Domains of one label are added up before nodes are looked at."""
        if not len(self._sums) or self._change() is None:
            self._changes = [len(tally.changed) for _, tally, _ in self._tallies()]
            self._of_domains = {key: self._in_domains(key) for key in self._by_key}
            at_nodes = [self._seen.domains(key).at_nodes(sums) for key, sums in self._of_domains.items()]
            self._sums = reduce(np.add, at_nodes)
        return self._sums

    def _in_domains(self, key: str) -> Int64s:
        counted = [self._seen.tally(matcher, key).numbers * weight for matcher, weight in self._by_key[key]]
        return reduce(np.add, counted)

    def _tallies(self) -> Iterator[tuple[str, Tally, int]]:
        for key, counted in self._by_key.items():
            for matcher, weight in counted:
                yield key, self._seen.tally(matcher, key), weight

    def _change(self) -> dict[int, int] | None:
        """Add up again what has changed; return sums before by position; None: too many have changed."""
        domains: dict[tuple[str, int], None] = {}
        tallies = list(self._tallies())
        for number, (key, tally, _) in enumerate(tallies):
            for domain in tally.changed[self._changes[number] :]:
                domains[key, domain] = None
            self._changes[number] = len(tally.changed)
        if len(domains) > _MOST_APART:
            self._sums = _NOTHING
            return None
        before: dict[int, int] = {}
        for key, domain in domains:
            now = sum(int(tally.numbers[domain]) * weight for of, tally, weight in tallies if of == key)
            by, self._of_domains[key][domain] = now - int(self._of_domains[key][domain]), now
            members = self._seen.members(key, domain) if by else _NOTHING
            if len(before) + len(members) > _MOST_APART:
                self._sums = _NOTHING
                return None
            for position in members.tolist():
                before.setdefault(position, int(self._sums[position]))
                self._sums[position] += by
        return before


#: Above any sum.
_END: Final = 1 << 60
#: If there are more domains or nodes whose sum is another one, all are looked at.
_MOST_APART: Final = 16
_NOTHING: Final = np.zeros(0, np.int64)
