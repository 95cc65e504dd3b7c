"""Preferred affinity and anti-affinity between pods, the pod's own and others' (InterPodAffinity).

A pod counts in its node's domain of a term's key: for each of the pod's own terms that takes it, and for each of its
own terms that takes the pod. Affinity adds the term's weight, anti-affinity takes it off. Required affinity of others
counts with a weight of its own.
"""

from __future__ import annotations

import numpy as np

from scheduler.core.filters.pod_terms import Drawing, TakenByAll, without_key
from scheduler.core.model.pod_preferences import Weights
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

    def asks(self, cls: PodClass, seen: Seen) -> int:
        """A look for each term."""
        del seen
        return len(cls.drawn_by) + (0 if cls.prefers is None else len(cls.prefers.pod_terms))

    def scores(self, cls: PodClass, seen: Seen, fits: Bools) -> Int64s:
        """From the least sum of nodes that fit to the largest."""
        sums = _sums(cls, seen)
        least, largest = int(np.where(fits, sums, _END).min()), int(np.where(fits, sums, -_END).max())
        if least == largest:
            return np.zeros(len(sums), np.int64)
        # In floating point, in this order: 100 * (29 / 100) is 28.999..., which counts as 28.
        found: Int64s = (MOST * ((np.where(fits, sums, least) - least) / (largest - least))).astype(np.int64)
        return found


#: Above any sum.
_END = 1 << 60


def _sums(cls: PodClass, seen: Seen) -> Int64s:
    """What each node's domains add up to. Domains of one label are added up before nodes are looked at."""
    by_key: dict[str, Int64s] = {}
    for own in () if cls.prefers is None else cls.prefers.pod_terms:
        taken = seen.in_domains(TakenByAll((without_key(own.term),), unknown=False), own.term.key)
        by_key[own.term.key] = by_key.get(own.term.key, 0) + taken * own.weight
    for one in cls.drawn_by:
        owners = seen.in_domains(Drawing(one), one.term.key)
        by_key[one.term.key] = by_key.get(one.term.key, 0) + owners * one.weight
    at_nodes = [seen.domains(key).at_nodes(of_domains) for key, of_domains in by_key.items()]
    return sum(at_nodes[1:], at_nodes[0])
