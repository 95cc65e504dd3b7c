"""Nodes that are not ready take nobody."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord


class Readiness(Filter):
    """The node's condition Ready."""

    kind = "not-ready"
    words = "node(s) were not ready"

    @override
    def asked(self, constraints: Constraints) -> bool:
        """Every pod asks it."""
        del constraints
        return True

    @override
    def admits(self, node: NodeRecord, asked: bool) -> bool:
        """Whether kubelet is there."""
        return node.is_ready is asked

    @override
    def reads(self, node: NodeRecord) -> object:
        """The condition."""
        return node.is_ready
