"""Preferred node affinity: the sum of the weights of the terms that hold on a node (NodeAffinity)."""

from __future__ import annotations

from collections.abc import Hashable

from scheduler.core.filters.requirements import effort_of, holds
from scheduler.core.model.pod_class import PodClass, WeightedNodeTerm, Weights
from scheduler.core.model.records import NodeRecord
from scheduler.core.scores.preferences.preference import Fixed, Seen, of_largest


class NodeAffinity:
    """A term without expressions holds nowhere."""

    name = "node-affinity"
    depends_on_pods = False

    def weight(self, weights: Weights) -> int:
        """As set."""
        return weights.node_affinity

    def scorer(self, cls: PodClass, seen: Seen) -> Fixed | None:
        """The best where the sum is the largest."""
        terms = () if cls.prefers is None else cls.prefers.node_terms
        return Fixed(1, lambda fits: of_largest(seen.numbers(_SUM, terms), fits)) if terms else None


class _Sum:
    """The sum of weights."""

    kind = "preferred-node-terms"

    def reads(self, node: NodeRecord, asked: tuple[WeightedNodeTerm, ...]) -> Hashable:
        """The labels that terms name, and the node's name if one asks for it."""
        keys = dict.fromkeys(requirement.key for each in asked for requirement in each.term.labels)
        name = node.name if any(each.term.fields for each in asked) else ""
        return (name, *map(node.labels.get, keys))

    def number(self, node: NodeRecord, asked: tuple[WeightedNodeTerm, ...]) -> int:
        """Add them up."""
        return sum(each.weight for each in asked if holds(each.term, node))

    def effort(self, asked: tuple[WeightedNodeTerm, ...]) -> int:
        """As for required terms."""
        return effort_of(each.term for each in asked)


_SUM = _Sum()
