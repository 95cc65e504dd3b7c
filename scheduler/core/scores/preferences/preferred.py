"""The weighted sum of all preferences of one class, by node, asked again when something was placed since.

All preferences are listed here, one line each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.model.pod_class import PodClass, Weights
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.pod_affinity import PodAffinity
from scheduler.core.scores.preferences.preference import Images, NodeAffinity, Preference, PreferNoSchedule, Scorer
from scheduler.core.scores.preferences.soft_spread import SoftSpread
from scheduler.core.snapshot.pod_counts import NodeGroups, PodCounts

Preferences: TypeAlias = "tuple[Preference, ...]"

PREFERENCES: Final[Preferences] = (PreferNoSchedule(), NodeAffinity(), PodAffinity(), SoftSpread(), Images())


#: Below any sum, with anything added to it.
NOT_FITTING: Final = -(1 << 60)
#: What it takes to ask for a few nodes, in operations of about a microsecond, for each look that all would take.
_ASKING_AGAIN: Final = 3
#: What it takes to ask for all, in operations of about a microsecond, and one more for each this many nodes.
_ASKING: Final = 10
_NODES_PER_OPERATION: Final = 500


class Preferred:
    """Sums for the nodes that fit, larger is better."""

    __slots__ = ("_at", "_counts", "_fits", "_known", "_of_fitting", "_scorers", "_sums")

    def __init__(self, counts: PodCounts, scorers: Sequence[tuple[Preference, int, Scorer]]) -> None:
        """``scorers``: preferences of the class, with their weights."""
        self._counts = counts
        self._scorers = scorers
        #: Scores by preference, times its weight.
        self._known: dict[str, Int64s] = {}
        self._fits: Bools = np.zeros(0, np.bool_)
        self._at = -1
        self._sums: Int64s = np.zeros(0, np.int64)
        #: The same of nodes that fit, of others NOT_FITTING.
        self._of_fitting = self._sums

    def sums(self, fits: Bools) -> Int64s:
        """The weighted sum of scores for each node that fits, of at least one. Not to be written."""
        self._ask(fits)
        return self._sums

    def of_fitting(self, fits: Bools) -> Int64s:
        """The same, of nodes that do not fit NOT_FITTING."""
        self._ask(fits)
        return self._of_fitting

    def changes(self, fits: Bools) -> Collection[int] | None:
        """Bring sums up to date; positions where they may have changed by that, few; None: anywhere."""
        return self._ask(fits)

    def _ask(self, fits: Bools) -> Collection[int] | None:
        is_as_before = fits is self._fits or np.array_equal(fits, self._fits)
        if is_as_before and self._at == self._counts.moved:
            return ()
        self._at = self._counts.moved
        if not is_as_before:
            self._fits = fits
            self._ask_all(self._scorers)
            return None
        changed: dict[int, None] = {}
        stale = []
        for one in self._scorers:
            preference, weight, scorer = one
            if not preference.depends_on_pods:
                continue
            self._counts.spend(scorer.asked * _ASKING_AGAIN)
            found = scorer.again()
            if found is None:
                stale.append(one)
                continue
            known = self._known[preference.name]
            for position, score in found.items():
                known[position] = score * weight
                changed[position] = None
        if stale:
            self._ask_all(stale)
            return None
        for position in changed:
            self._add_up(position)
        return changed

    def _ask_all(self, scorers: Sequence[tuple[Preference, int, Scorer]]) -> None:
        for preference, weight, scorer in scorers:
            self._counts.spend(scorer.asked * (_ASKING + len(self._fits) // _NODES_PER_OPERATION))
            self._known[preference.name] = scorer.scores(self._fits) * weight
        self._sums = reduce(np.add, self._known.values(), np.zeros(len(self._fits), np.int64))
        self._of_fitting = np.where(self._fits, self._sums, NOT_FITTING)

    def _add_up(self, position: int) -> None:
        """Add up scores of one node."""
        self._sums[position] = now = sum(known.item(position) for known in self._known.values())
        self._of_fitting[position] = now if self._fits[position] else NOT_FITTING

    def by_preference(self, fits: Bools) -> dict[str, Int64s]:
        """Name -> its score for each node that fits, times its weight."""
        self.sums(fits)
        return dict(self._known)


class ByDomain:
    """Weighted scores of a preference that knows them by domain of a label."""

    __slots__ = ("_key", "_scorer", "_weight")

    def __init__(self, scorer: Scorer, weight: int, key: str) -> None:
        self._scorer = scorer
        self._weight = weight
        self._key = key

    def of_groups(self, fits: Bools, groups: NodeGroups) -> Int64s:
        """What it adds to the sums of the nodes of each group. Equal ``fits`` are one object."""
        by_domain = self._scorer.by_domain(fits)
        found: Int64s = by_domain.take(groups.domains(self._key)) * self._weight
        return found


def divided(
    cls: PodClass, counts: PodCounts, weights: Weights, preferences: Preferences = PREFERENCES
) -> tuple[Preferred, ByDomain | None, NodeGroups]:
    """The sums for a class by node, and by groups of nodes what a preference adds that is known by domain."""
    scorers = _scorers_of(cls, counts, weights, preferences)
    by_domain, groups = None, counts.groups(())
    for number, (_, weight, scorer) in enumerate(scorers):
        if scorer.key is not None and counts.groups((scorer.key,)).has(scorer.key):
            by_domain, groups = ByDomain(scorer, weight, scorer.key), counts.groups((scorer.key,))
            del scorers[number]
            break
    return Preferred(counts, scorers), by_domain, groups


def preferred_of(
    cls: PodClass, counts: PodCounts, weights: Weights, preferences: Preferences = PREFERENCES
) -> Preferred | None:
    """The sums for a class; None if all nodes are equal by what it prefers."""
    scorers = _scorers_of(cls, counts, weights, preferences)
    return Preferred(counts, scorers) if scorers else None


def _scorers_of(
    cls: PodClass, counts: PodCounts, weights: Weights, preferences: Preferences
) -> list[tuple[Preference, int, Scorer]]:
    weighted = [(each, weight) for each in preferences if (weight := each.weight(weights))]
    made = [(each, weight, each.scorer(cls, counts)) for each, weight in weighted]
    return [(each, weight, scorer) for each, weight, scorer in made if scorer is not None]
