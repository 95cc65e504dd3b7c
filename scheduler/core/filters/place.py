"""Nodes that one of a pod's alternative requests is for, by the units and replicas that they have."""

from __future__ import annotations

from typing_extensions import override

from gpu.translation import Place as Labels
from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord


class Place(Filter):
    """Labels that say how a node offers its GPUs."""

    kind = "place"
    words = "node(s) have GPU units or replicas that do not match the Pod's request"

    @override
    def asked(self, constraints: Constraints) -> Labels | None:
        """The labels."""
        return constraints.place

    @override
    def admits(self, node: NodeRecord, asked: Labels) -> bool:
        """Whether the node has them."""
        return asked.holds(node.labels)

    @override
    def effort(self, asked: Labels) -> int:
        """Each label is compared."""
        return len(asked.labels) + sum(map(len, asked.other_than))

    @override
    def reads(self, node: NodeRecord) -> object:
        """The labels."""
        return node.labels
