"""The best node for a class without a look at all nodes for each pod, where rules or preferences have a say.

Rules about other pods leave some nodes open: nodes are in groups by the coarse labels that rules look at
(``NodeGroups``). The least rank of each group is kept, and found again only where a rank has changed, or a node was
opened or closed. A rule that closes a whole zone leaves out the groups of that zone.

Preferences: of spread over zones and the like the score is known by domain, of all other preferences by node. Nodes are
in groups by such a label. The largest sum by node of each group is kept, with the least rank that has it, and found
again only in groups where a sum or a rank has changed. What domains add decides between groups. Where a node begins to
fit or no longer does, all scores may be others, so all are asked again.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler.core.devices.device_fit import NOWHERE
from scheduler.core.model.pod_class import PodClass, Weights
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.scores.preferences.preferred import NOT_FITTING, ByDomain, Preferred, divided
from scheduler.core.snapshot.pod_counts import PodCounts
from scheduler.core.snapshot.rule_columns import Flipped, RuleColumns


class OpenRanks:
    """Ranks of nodes as their groups have them, those of closed nodes NOWHERE."""

    __slots__ = ("_firsts", "_groups", "_least", "_ranks", "_rules")

    def __init__(self, rules: RuleColumns) -> None:
        self._rules = rules
        self._groups = rules.groups
        #: In the order of groups; empty until it is made.
        self._ranks: Int64s = np.zeros(0, np.int64)
        #: Of each group its least rank, and the first position that has it.
        self._least: Int64s = np.full(self._groups.count, NOWHERE)
        self._firsts: Int64s = np.zeros(self._groups.count, np.int64)

    def forget(self) -> None:
        """All ranks may be others."""
        self._ranks = np.zeros(0, np.int64)

    def best(self, keys: Int64s, changed: Iterable[int]) -> int | None:
        """The first of the positions with the least rank that is open; None if there is none.

        ``keys``: ranks by position. ``changed``: positions whose rank is another one since this was asked last.
        """
        flipped = self._rules.flipped()
        if flipped is None or not len(self._ranks):
            self._make(keys)
        else:
            self._change(keys, changed, flipped)
        closing = self._rules.closing_groups
        if len(closing) == 1:
            return None if closing[0] or self._least[0] == NOWHERE else int(self._firsts[0])
        least = np.where(closing, NOWHERE, self._least)
        rank = least.item(least.argmin())
        return None if rank == NOWHERE else int(np.minimum.reduce(self._firsts[least == rank]))

    def _make(self, keys: Int64s) -> None:
        ranks = np.where(self._rules.open_nodes, keys, NOWHERE)
        order = self._groups.order
        self._ranks = ranks if order is None else ranks[order]
        for group in range(self._groups.count):
            self._look_at(group)

    def _change(self, keys: Int64s, changed: Iterable[int], flipped: Flipped) -> None:
        is_open, at, of = self._rules.open_nodes, self._groups.at, self._groups.of
        stale: set[int] = set()
        for position in {*changed, *flipped.single}:
            rank = keys.item(position) if is_open.item(position) else NOWHERE
            self._ranks[position if at is None else at.item(position)] = rank
            stale.add(of.item(position))
        for positions in flipped.several:
            ranks = np.where(is_open[positions], keys[positions], NOWHERE)
            self._ranks[positions if at is None else at.take(positions)] = ranks
            stale.update(of.take(positions).tolist())
        for group in stale:
            self._look_at(group)

    def _look_at(self, group: int) -> None:
        starts, order = self._groups.starts, self._groups.order
        start, end = starts[group], starts[group + 1]
        if start == end:
            return
        first = start + int(self._ranks[start:end].argmin())
        self._least[group] = self._ranks[first]
        self._firsts[group] = first if order is None else order[first]


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
