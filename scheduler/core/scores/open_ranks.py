"""The best of the nodes that rules about other pods leave open, without a look at all of them for each pod.

Nodes are in groups by the coarse labels that rules look at (snapshot/node_groups.py). The least rank of each group is
kept, and found again only where a rank has changed, or a node was opened or closed. A rule that closes a whole zone
leaves out the groups of that zone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler.core.devices.device_pools import NOWHERE
from scheduler.core.nodes.table import Int64s
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
