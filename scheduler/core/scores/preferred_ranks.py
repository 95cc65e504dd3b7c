"""The best node for a class that prefers something, without a look at all nodes for each pod.

Of spread over zones and the like the score is known by domain, of all other preferences by node. Nodes are in groups by
such a label (snapshot/node_groups.py). The largest sum by node of each group is kept, with the least rank that has it,
and found again only in groups where a sum or a rank has changed. What domains add decides between groups.

Where a node begins to fit or no longer does, all scores may be others, so all are asked again.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler.core.devices.device_pools import NOWHERE
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.pod_preferences import Weights
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preferred import NOT_FITTING, ByDomain, Preferred, divided
from scheduler.core.snapshot.pod_counts import PodCounts

_NOTHING = np.zeros(0, np.int64)


class PreferredRanks:
    """Sums of preferences and ranks as the groups of nodes have them."""

    __slots__ = ("_domains", "_firsts", "_fits", "_groups", "_least", "_most", "_nodes", "_ranks", "_sums")

    def __init__(self, cls: PodClass, counts: PodCounts, weights: Weights) -> None:
        self._nodes: Preferred
        self._domains: ByDomain | None
        self._nodes, self._domains, self._groups = divided(cls, counts, weights)
        #: Nodes that fit; empty until it is made.
        self._fits: Bools = np.zeros(0, np.bool_)
        #: By position in the order of groups: sums by node, NOT_FITTING where none fits, and ranks.
        self._sums, self._ranks = _NOTHING, _NOTHING
        #: Of each group the largest sum, the least rank of those that have it, and the first position of those.
        count = self._groups.count
        self._most, self._least, self._firsts = (np.full(count, each) for each in (NOT_FITTING, NOWHERE, 0))

    def forget(self) -> None:
        """All ranks may be others."""
        self._fits = np.zeros(0, np.bool_)

    def best(self, keys: Int64s, changed: Iterable[int]) -> int | None:
        """The first of the positions with the least rank, of those with the largest sum; None if none fits.

        ``keys``: ranks by position. ``changed``: positions whose rank is another one since this was asked last.
        """
        positions = list(changed)
        is_as_before = len(self._fits) and all((keys.item(at) != NOWHERE) == self._fits.item(at) for at in positions)
        if is_as_before:
            self._change(keys, positions)
            return self._chosen()
        self._fits = keys != NOWHERE
        if not self._fits.any():
            self.forget()
            return None
        self._make(keys)
        return self._chosen()

    def _chosen(self) -> int:
        sums = self._most
        if self._domains is not None:
            # Where no node fits it stays far below all others.
            sums = sums + self._domains.of_groups(self._fits, self._groups)
        if len(sums) == 1:
            return int(self._firsts[0])
        first = int(sums.argmax())
        among = (sums == sums[first]).nonzero()[0]
        if len(among) == 1:
            return int(self._firsts[first])
        ranks = self._least[among]
        return int(np.minimum.reduce(self._firsts[among[ranks == np.minimum.reduce(ranks)]]))

    def _make(self, keys: Int64s) -> None:
        sums, order = self._nodes.of_fitting(self._fits), self._groups.order
        self._sums, self._ranks = (sums.copy(), keys.copy()) if order is None else (sums[order], keys[order])
        for group in range(self._groups.count):
            self._look_at(group)

    def _change(self, keys: Int64s, positions: Iterable[int]) -> None:
        found = self._nodes.changes(self._fits)
        if found is None:
            self._make(keys)
            return
        groups, sums, stale = self._groups, self._nodes.of_fitting(self._fits), set[int]()
        for position in {*positions, *found}:
            at = position if groups.at is None else groups.at.item(position)
            self._ranks[at], self._sums[at] = keys[position], sums[position]
            stale.add(groups.of.item(position))
        for group in stale:
            self._look_at(group)

    def _look_at(self, group: int) -> None:
        start, end = self._groups.starts[group], self._groups.starts[group + 1]
        if start == end:
            return
        sums = self._sums[start:end]
        most = np.maximum.reduce(sums)
        ranks = np.where(sums == most, self._ranks[start:end], NOWHERE)
        first = int(ranks.argmin())
        self._most[group], self._least[group] = most, ranks[first]
        at = start + first
        self._firsts[group] = at if self._groups.order is None else self._groups.order[at]
