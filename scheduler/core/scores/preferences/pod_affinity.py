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

from scheduler.core.filters.pod_rule import Matcher
from scheduler.core.filters.pod_terms import Drawing, TakenByAll, without_key
from scheduler.core.model.pod_preferences import WeightedTerm, Weights
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preference import MOST, Seen


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

    def scores(self, fits: Bools) -> Int64s:
        """As parts of what lies between the least and the largest sum."""
        sums = self._sums()
        least, largest = int(np.where(fits, sums, _END).min()), int(np.where(fits, sums, -_END).max())
        if least == largest:
            return np.zeros(len(sums), np.int64)
        # In floating point, in this order: 100 * (29 / 100) is 28.999..., which counts as 28.
        found: Int64s = (MOST * ((sums - least) / (largest - least))).astype(np.int64)
        return found

    def _sums(self) -> Int64s:
        """What each node's domains add up to. Domains of one label are added up before nodes are looked at."""
        at_nodes = [self._seen.domains(key).at_nodes(self._in_domains(key)) for key in self._by_key]
        return reduce(np.add, at_nodes)

    def _in_domains(self, key: str) -> Int64s:
        counted = [self._seen.tally(matcher, key).numbers * weight for matcher, weight in self._by_key[key]]
        return reduce(np.add, counted)


#: Above any sum.
_END: Final = 1 << 60
