"""Topology spread that need not hold: the fewer selected pods are in a node's domains, the better (PodTopologySpread).

Of several constraints each counts more, the more domains it has: by the logarithm of their number, so that a few zones
do not drown in many hosts.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.core.filters.pod_rule import Domains, all_of
from scheduler.core.filters.spread import Admitting, Staying
from scheduler.core.model.pod_preferences import PodPreferences, Weights
from scheduler.core.model.pod_rules import Spread
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preference import MOST, Seen
from wire import names

_END: Final = 1 << 60
_HALF: Final = 0.5


class SoftSpread:
    """Nodes that lack the label of a constraint get 0, and count for none of them."""

    name = "soft-spread"
    depends_on_pods = True

    def weight(self, weights: Weights) -> int:
        """As set."""
        return weights.soft_spread

    def asks(self, cls: PodClass, seen: Seen) -> int:
        """A look for each constraint."""
        del seen
        return 0 if cls.prefers is None else len(cls.prefers.spread)

    def scores(self, cls: PodClass, seen: Seen, fits: Bools) -> Int64s:
        """The best where the sum is the least of nodes that fit."""
        if cls.prefers is None:
            raise ValueError("a class without spread constraints has no such scores")
        keys = tuple(dict.fromkeys(spread.key for spread in cls.prefers.spread))
        scored = fits & all_of([seen.domains(key).is_known for key in keys])
        sums = np.zeros(len(fits), np.float64)
        for spread in cls.prefers.spread:  # in the order in which they are written: it decides the last bit
            honors = spread.honors_affinity, spread.honors_taints
            per_node = _pods_beside(spread, cls.prefers, Admitting(keys, cls.constraints, *honors), seen)
            sums += np.where(scored, per_node * _weight(spread, seen, scored) + float(spread.most_skew - 1), 0)
        return _normalised(_rounded(sums), scored)


def _pods_beside(spread: Spread, prefers: PodPreferences, counted: Admitting, seen: Seen) -> Int64s:
    """Selected pods in each node's domain. On one host all count, also where the pod may not be."""
    pods = Staying(prefers.namespace, spread.selector)
    if spread.key == names.HOSTNAME_LABEL:
        return seen.per_node(pods)
    return seen.domains(spread.key).at_nodes(seen.in_domains(pods, spread.key, counted))


def _weight(spread: Spread, seen: Seen, scored: Bools) -> float:
    is_host = spread.key == names.HOSTNAME_LABEL
    domains = int(scored.sum()) if is_host else _domains_of(seen.domains(spread.key), scored)
    return math.log(domains + 2)


def _domains_of(domains: Domains, scored: Bools) -> int:
    """How many domains have a node that is scored, each of which has the label."""
    is_there = np.zeros(domains.count + 1, np.bool_)
    is_there[domains.of[scored]] = True
    return int(is_there.sum())


def _rounded(sums: NDArray[np.float64]) -> Int64s:
    """The nearest integers, halves away from 0; sums are not below 0."""
    whole = np.floor(sums)
    found: Int64s = whole.astype(np.int64) + (sums - whole >= _HALF)
    return found


def _normalised(sums: Int64s, scored: Bools) -> Int64s:
    least, largest = int(np.where(scored, sums, _END).min()), int(np.where(scored, sums, 0).max())
    found: Int64s = np.where(scored, MOST * (largest + least - sums) // largest if largest else MOST, 0)
    return found
