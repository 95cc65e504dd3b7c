"""The weighted sum of all preferences of one class, by node, asked again when something was placed since."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np

from scheduler.core.model.pod_preferences import Weights
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preference import Preference, Scorer
from scheduler.core.scores.preferences.registry import PREFERENCES, Preferences
from scheduler.core.snapshot.pod_counts import PodCounts

#: What it takes to ask once again, in operations of about a microsecond, and one for so many nodes.
_ASKING: Final = 10
_NODES_PER_OPERATION: Final = 500


class Preferred:
    """Sums for the nodes that fit, larger is better."""

    __slots__ = ("_at", "_counts", "_fits", "_known", "_scorers", "_sums")

    def __init__(self, counts: PodCounts, scorers: Sequence[tuple[Preference, int, Scorer]]) -> None:
        """``scorers``: preferences of the class, with their weights."""
        self._counts = counts
        self._scorers = scorers
        self._known: dict[str, Int64s] = {}
        self._fits: Bools = np.zeros(0, np.bool_)
        self._at = -1
        self._sums: Int64s = np.zeros(0, np.int64)

    def sums(self, fits: Bools) -> Int64s:
        """The weighted sum of scores for each node that fits, of at least one. Not to be written."""
        is_as_before = np.array_equal(fits, self._fits)
        if is_as_before and self._at == self._counts.moved:
            return self._sums
        if not is_as_before:
            self._fits = fits
        stale = [each for each in self._scorers if each[0].depends_on_pods or not is_as_before]
        for preference, weight, scorer in stale:
            self._counts.spend(scorer.asked * (_ASKING + len(fits) // _NODES_PER_OPERATION))
            self._known[preference.name] = scorer.scores(self._fits) * weight
        if stale:
            self._sums = reduce(np.add, self._known.values())
        self._at = self._counts.moved
        return self._sums

    def by_preference(self, fits: Bools) -> dict[str, Int64s]:
        """Name -> its score for each node that fits, times its weight."""
        self.sums(fits)
        return dict(self._known)


def preferred_of(
    cls: PodClass, counts: PodCounts, weights: Weights, preferences: Preferences = PREFERENCES
) -> Preferred | None:
    """The sums for a class; None if all nodes are equal by what it prefers."""
    weighted = [(each, weight) for each in preferences if (weight := each.weight(weights))]
    made = [(each, weight, each.scorer(cls, counts)) for each, weight in weighted]
    scorers = [(each, weight, scorer) for each, weight, scorer in made if scorer is not None]
    return Preferred(counts, scorers) if scorers else None
