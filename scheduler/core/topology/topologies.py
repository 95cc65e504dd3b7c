"""Topologies by name, and the nodes of a ledger sorted by each of them, made when that is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.core.model.facts import Facts
from scheduler.core.model.topology import TopologyRecord
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.topology.tree import Tree, tree_of

#: The most lists of labels for which sorted nodes are kept; beyond that they are sorted again.
_MOST_KEPT: Final = 8


class Topologies:
    """``changed`` is called when a Topology is new, different or gone, or whether they can be read has changed."""

    __slots__ = ("_trees", "of_kai")

    def __init__(self, changed: Callable[[], None]) -> None:
        self.of_kai: Facts[str, TopologyRecord] = Facts(lambda _: changed(), read_changed=changed)
        self._trees: dict[tuple[int, tuple[str, ...]], Tree] = {}

    def get(self, name: str) -> TopologyRecord | None:
        """The Topology of this name."""
        return self.of_kai.get(name)

    @property
    def is_current(self) -> bool:
        """Whether a Topology that is not known does not exist."""
        return self.of_kai.is_current

    def tree(self, topology: TopologyRecord, ledger: Ledger) -> Tree:
        """The nodes of a ledger, in the order of their names, by the levels of a topology.

        O(nodes x levels), and kept until a label of a node changes, or nodes come or go.
        """
        key = ledger.labels_version, topology.labels
        known = self._trees.get(key)
        if known is None:
            while len(self._trees) >= _MOST_KEPT:
                del self._trees[next(iter(self._trees))]
            known = self._trees[key] = tree_of(ledger.in_order().nodes, topology.labels)
        return known
