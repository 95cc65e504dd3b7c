"""Topology spread that need not hold: the fewer selected pods are in a node's domains, the better (PodTopologySpread).

Of several constraints each counts more, the more domains it has: by the logarithm of their number, so that a few zones
do not drown in many hosts.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.filters.pod_rule import all_of
from scheduler.core.filters.spread import Admitting, Staying
from scheduler.core.model.pod_class import Constraints, PodClass, PodPreferences, Spread, Weights
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preference import MOST, UNCHANGED, Changed, Seen
from wire import names

_END: Final = 1 << 60
_HALF: Final = 0.5

Floats: TypeAlias = "NDArray[np.floating[Any]]"


class SoftSpread:
    """Nodes that lack the label of a constraint get 0, and count for none of them."""

    name = "soft-spread"
    depends_on_pods = True

    def weight(self, weights: Weights) -> int:
        """As set."""
        return weights.soft_spread

    def scorer(self, cls: PodClass, seen: Seen) -> Spreading | None:
        """The best where the sum is the least of nodes that fit."""
        return Spreading(cls.prefers, cls.constraints, seen) if cls.prefers is not None and cls.prefers.spread else None


class _Constraint:
    """A constraint, with the pods that count for it. On one host all do, also where the pod may not be."""

    def __init__(self, spread: Spread, pods: Staying, counted: Admitting, seen: Seen) -> None:
        self.key = spread.key
        self.is_host = spread.key == names.HOSTNAME_LABEL
        self.tally = seen.tally(pods, None) if self.is_host else seen.tally(pods, spread.key, counted)
        self.tolerated = float(spread.most_skew - 1)

    def weight(self, seen: Seen, scored: Bools) -> float:
        """The more domains have a node that is scored, the more one pod counts."""
        number = scored.sum() if self.is_host else self.domains_of(seen, scored).sum()
        return math.log(int(number) + 2)

    def domains_of(self, seen: Seen, scored: Bools) -> Bools:
        """Domains that have a node that is scored."""
        domains = seen.domains(self.key)
        is_there = np.zeros(domains.count, np.bool_)
        is_there[domains.of[scored]] = True
        return is_there

    def by_node(self, seen: Seen, weight: float) -> Floats:
        """What it adds at each node."""
        numbers = self.tally.numbers
        return (numbers if self.is_host else seen.domains(self.key).at_nodes(numbers)) * weight + self.tolerated

    def moves(self) -> int:
        """How many moves of its pods are counted by now."""
        self.tally.catch_up()
        return self.tally.taken


class _ByDomain:
    """Scores by a single constraint of the domains that have a node that is scored, kept up to date with its pods."""

    def __init__(self, constraint: _Constraint, weight: float, scored: Bools) -> None:
        """``scored``: these domains."""
        self._tally, self._weight, self._tolerated = constraint.tally, weight, constraint.tolerated
        self._scored: Bools | slice = slice(None) if scored.all() else scored
        #: By domain, all of them; and how many changes of the tally are in it.
        self._amounts = _rounded(self._tally.numbers * weight + self._tolerated)
        self._seen = len(self._tally.changed)

    def scores(self) -> Int64s:
        """By domain; 0 of others, and at the end of nodes without the label."""
        tally = self._tally
        for domain in dict.fromkeys(tally.changed[self._seen :]):
            amount = tally.numbers.item(domain) * self._weight + self._tolerated
            whole = math.floor(amount)
            self._amounts[domain] = whole + (amount - whole >= _HALF)
        self._seen = len(tally.changed)
        found = np.zeros(len(self._amounts) + 1, np.int64)
        amounts = self._amounts[self._scored]
        if len(amounts):
            # Asked after each placement: the methods min and max take twice as long for a few domains.
            least, largest = int(np.minimum.reduce(amounts)), int(np.maximum.reduce(amounts))
            found[:-1][self._scored] = _parts(amounts, least, largest)
        return found


class Spreading:
    """Scores by the pods in the domains of nodes; what depends on the nodes that fit alone is kept."""

    def __init__(self, prefers: PodPreferences, constraints: Constraints, seen: Seen) -> None:
        keys = tuple(dict.fromkeys(spread.key for spread in prefers.spread))
        self._seen = seen
        self._constraints = [
            _Constraint(
                spread,
                Staying(prefers.namespace, spread.selector),
                Admitting(keys, constraints, spread.honors_affinity, spread.honors_taints),
                seen,
            )
            for spread in prefers.spread
        ]
        self._has_labels = all_of([seen.domains(key).is_known for key in keys])
        self.asked = len(self._constraints)
        self._fits: Bools | None = None
        self._scored = self._has_labels
        self._weights: list[float] = []
        #: Of a single constraint that is not about hosts; and its scores.
        self._domains: _ByDomain | None = None
        self._by_domain: Int64s = np.zeros(0, np.int64)
        #: Of each constraint how many moves of pods were counted.
        self._counted: list[int] = []

    def scores(self, fits: Bools) -> Int64s:
        """The fewer, the better; 0 without a label."""
        if self.key is not None:
            found: Int64s = self.by_domain(fits)[self._seen.domains(self.key).of]
            return found
        self._look_at(fits)
        self._counted = [one.moves() for one in self._constraints]
        # In the order in which constraints are written: it decides the last bit.
        of_each = zip(self._constraints, self._weights, strict=True)
        sums = reduce(np.add, [one.by_node(self._seen, weight) for one, weight in of_each])
        return _normalised(_rounded(sums), self._scored)

    @property
    def key(self) -> str | None:
        """The label of a single constraint that is not about hosts."""
        (first, *more) = self._constraints
        return None if more or first.is_host else first.key

    def by_domain(self, fits: Bools) -> Int64s:
        """As at nodes with the label."""
        self._look_at(fits)
        counted = [one.moves() for one in self._constraints]
        if self._domains is not None and counted != self._counted:
            self._counted, self._by_domain = counted, self._domains.scores()
        return self._by_domain

    def again(self) -> Changed | None:
        """Nothing, if no pod has come or gone that is counted."""
        return UNCHANGED if self._counted == [one.moves() for one in self._constraints] else None

    def _look_at(self, fits: Bools) -> None:
        if fits is self._fits:
            return
        self._fits, self._scored, self._counted = fits, fits & self._has_labels, []
        self._weights = [one.weight(self._seen, self._scored) for one in self._constraints]
        if self.key is not None:
            (one,), (weight,) = self._constraints, self._weights
            self._domains = _ByDomain(one, weight, one.domains_of(self._seen, self._scored))


def _rounded(sums: Floats) -> Int64s:
    """The nearest integers, halves away from 0; sums are not below 0."""
    whole = np.floor(sums)
    found: Int64s = whole.astype(np.int64) + (sums - whole >= _HALF)
    return found


def _normalised(sums: Int64s, scored: Bools) -> Int64s:
    if not scored.any():
        return np.zeros(len(sums), np.int64)
    least, largest = int(np.where(scored, sums, _END).min()), int(np.where(scored, sums, 0).max())
    found: Int64s = np.where(scored, _parts(sums, least, largest), 0)
    return found


def _parts(sums: Int64s, least: int, largest: int) -> Int64s:
    """The best for the least sum, and less in proportion to the largest."""
    return MOST * (largest + least - sums) // largest if largest else np.full(len(sums), MOST, np.int64)
