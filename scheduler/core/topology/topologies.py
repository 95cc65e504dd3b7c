"""Topologies by name, and the nodes of a ledger sorted by each of them, made when that is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.core.model.facts import Facts
from scheduler.core.model.topology import LevelConstraint, TopologyLevel, TopologyRecord
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.topology.tree import Tree, tree_of
from wire.names import ANY_TOPOLOGY, LABEL_ALONE

#: The most lists of labels for which sorted nodes are kept; beyond that they are sorted again.
_MOST_KEPT: Final = 8


class Topologies:
    """KAI's and Kueue's; of two with the same name KAI's counts.

    ``changed`` is called when a Topology is new, different or gone, or whether they can be read has changed.
    """

    __slots__ = ("_changed", "_having", "_trees", "of_kai", "of_kueue")

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.of_kai: Facts[str, TopologyRecord] = Facts(self._differ, read_changed=changed)
        self.of_kueue: Facts[str, TopologyRecord] = Facts(self._differ, read_changed=changed)
        self._trees: dict[tuple[int, tuple[str, ...]], Tree] = {}
        #: The Topologies with a label, by name; None: not sorted since the last change.
        self._having: dict[str, list[TopologyRecord]] | None = None

    def get(self, name: str) -> TopologyRecord | None:
        """The Topology of this name."""
        return self.of_kai.get(name) or self.of_kueue.get(name)

    def meant(self, asked: LevelConstraint) -> tuple[TopologyRecord, ...]:
        """The Topologies that a constraint may mean: one, if it can be carried out.

        A constraint on any Topology (``wire.names.ANY_TOPOLOGY``) means those that have its levels as labels. Of those
        whose labels are the same down to the lowest of these levels, which have the same domains, it is the first by
        name. A constraint on labels alone (``LABEL_ALONE``) needs no Topology.
        """
        if asked.topology == LABEL_ALONE:
            return (_of_labels(asked),)
        if asked.topology != ANY_TOPOLOGY:
            found = self.get(asked.topology)
            return () if found is None else (found,)
        labels = {asked.required, asked.preferred} - {""}
        paths: dict[tuple[str, ...], TopologyRecord] = {}
        for each in self._with(next(iter(labels), "")):
            if labels <= set(each.labels):
                paths.setdefault(each.labels[: max(map(each.labels.index, labels)) + 1], each)
        return tuple(paths.values())

    def not_read(self) -> str:
        """Which Topologies may exist without being known, as in ``kubectl get``; "" if all are known."""
        kinds = (("topologies.kai.scheduler", self.of_kai), ("topologies.kueue.x-k8s.io", self.of_kueue))
        return ", ".join(name for name, facts in kinds if not facts.is_current)

    def _with(self, label: str) -> list[TopologyRecord]:
        """The Topologies with a label, by name."""
        if self._having is None:
            self._having = {}
            for each in sorted({**_by_name(self.of_kueue), **_by_name(self.of_kai)}.values(), key=lambda one: one.name):
                for found in dict.fromkeys(each.labels):
                    self._having.setdefault(found, []).append(each)
        return self._having.get(label, [])

    def _differ(self, _: TopologyRecord) -> None:
        self._having = None
        self._changed()

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


def _of_labels(asked: LevelConstraint) -> TopologyRecord:
    """A Topology of the labels that a constraint names, the required one above the preferred one."""
    labels = dict.fromkeys(filter(None, (asked.required, asked.preferred)))
    return TopologyRecord(asked.topology, tuple(map(TopologyLevel, labels)))


def _by_name(facts: Facts[str, TopologyRecord]) -> dict[str, TopologyRecord]:
    return {each.name: each for each in facts.all()}
