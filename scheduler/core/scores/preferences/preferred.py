"""The weighted sum of all preferences of one class, by node, asked again when something was placed since."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.core.model.pod_preferences import Weights
from scheduler.core.model.records import PodClass
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preference import Preference
from scheduler.core.scores.preferences.registry import PREFERENCES, Preferences
from scheduler.core.snapshot.pod_counts import PodCounts

#: What it takes to ask once again, in operations of about a microsecond, and one for so many nodes.
_ASKING: Final = 10
_NODES_PER_OPERATION: Final = 500


class Preferred:
    """Sums for the nodes that fit, larger is better."""

    __slots__ = ("_asked", "_at", "_cls", "_counts", "_fits", "_known", "_sums")

    def __init__(self, cls: PodClass, counts: PodCounts, asked: tuple[tuple[Preference, int], ...]) -> None:
        """``asked``: preferences of the class, with their weights."""
        self._cls = cls
        self._counts = counts
        self._asked = asked
        self._known: dict[str, Int64s] = {}
        self._fits: Bools | None = None
        self._at = -1
        self._sums: Int64s = np.zeros(0, np.int64)

    def sums(self, fits: Bools) -> Int64s:
        """The weighted sum of scores for each node that fits, of at least one. Not to be written."""
        is_as_before = self._fits is not None and np.array_equal(fits, self._fits)
        if is_as_before and self._at == self._counts.moved:
            return self._sums
        stale = [each for each, _ in self._asked if each.depends_on_pods or not is_as_before]
        for each in stale:
            asked = each.asks(self._cls, self._counts)
            self._counts.spend(asked * (_ASKING + len(fits) // _NODES_PER_OPERATION))
            self._known[each.name] = each.scores(self._cls, self._counts, fits)
        if stale:
            self._sums = np.add.reduce([weight * self._known[each.name] for each, weight in self._asked])
        self._fits, self._at = fits, self._counts.moved
        return self._sums

    def by_preference(self, fits: Bools) -> dict[str, Int64s]:
        """Name -> its score for each node that fits, times its weight."""
        self.sums(fits)
        return {each.name: weight * self._known[each.name] for each, weight in self._asked}


def preferred_of(
    cls: PodClass, counts: PodCounts, weights: Weights, preferences: Preferences = PREFERENCES
) -> Preferred | None:
    """The sums for a class; None if all nodes are equal by what it prefers."""
    weighted = ((each, each.weight(weights)) for each in preferences)
    asked = tuple((each, weight) for each, weight in weighted if weight and each.asks(cls, counts))
    return Preferred(cls, counts, asked) if asked else None
