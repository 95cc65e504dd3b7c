"""Nodes that have the same domains of several labels, as groups: what depends on these alone is known by group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from scheduler.core.filters.pod_rule import Domains, Ints

#: A label is coarse if it has this many nodes for each domain; and the most groups.
_NODES_PER_DOMAIN: Final = 32
_MOST_GROUPS: Final = 256


class NodeGroups:
    """``of``: the group of each position. ``order``: positions by group, ascending in each; None: there is one group.

    ``starts``: where in that order each group begins, and the end. ``at``: where in it each position is.
    """

    __slots__ = ("_domains", "_in_domain", "at", "count", "of", "order", "starts")

    def __init__(self, nodes: int, domains: Mapping[str, Domains]) -> None:
        """``domains``: of the labels by which nodes are grouped."""
        self.order: Ints | None = None
        self.of: Ints = np.zeros(nodes, np.int64)
        self.at: Ints | None = None
        self.count = 1
        for each in domains.values():
            codes = self.of * (each.count + 1) + each.of + 1
            _, self.of = np.unique(codes, return_inverse=True)
            self.count = int(self.of.max()) + 1 if nodes else 1
        self.starts: list[int] = [0, nodes]
        if domains:
            order = np.argsort(self.of, kind="stable")
            self.starts = np.searchsorted(self.of[order], np.arange(self.count + 1)).tolist()
            self.order, self.at = order, np.empty(nodes, np.int64)
            self.at[order] = np.arange(nodes)
        #: Of each label the domain of each group.
        self._domains: dict[str, Ints] = {}
        for key, each in domains.items():
            of_group = np.zeros(self.count, np.int64)
            of_group[self.of] = each.of
            self._domains[key] = of_group
        #: The groups of a domain, as far as that was asked.
        self._in_domain: dict[tuple[str, int], Ints] = {}

    def has(self, key: str) -> bool:
        """Whether the nodes of a group are in one domain of a label, or all in none."""
        return key in self._domains

    def domains(self, key: str) -> Ints:
        """The domain of each group."""
        return self._domains[key]

    def in_domain(self, key: str, domain: int) -> Ints:
        """The groups whose nodes are in a domain."""
        known = self._in_domain.get((key, domain))
        if known is None:
            known = self._in_domain[key, domain] = np.flatnonzero(self._domains[key] == domain)
        return known


def coarse(keys: Iterable[str], domains: Mapping[str, Domains], nodes: int) -> tuple[str, ...]:
    """Those of some labels by which nodes are grouped: there are few groups, and many nodes in each."""
    found: list[str] = []
    groups = 1
    for key in sorted(dict.fromkeys(keys), key=lambda key: (domains[key].count, key)):
        groups *= domains[key].count + 1
        if groups > _MOST_GROUPS or nodes < domains[key].count * _NODES_PER_DOMAIN:
            break
        found.append(key)
    return tuple(found)
