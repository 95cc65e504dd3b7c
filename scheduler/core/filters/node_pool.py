"""Nodes of the scheduler's own node pool (model/settings.py)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import NodePool


class OwnPool(Filter):
    """Every pod asks it, where the cluster is divided.

    A node that has just come from another pool is out as well: pods may still be on their way to it from there.
    """

    kind = "node-pool"
    words = "node(s) were in another node pool, or have just left one"

    def __init__(self, pool: NodePool | None = None) -> None:
        self.pool = pool

    @override
    def asked(self, constraints: Constraints) -> NodePool | None:
        """The pool; None: the cluster is not divided."""
        del constraints
        return self.pool

    @override
    def admits(self, node: NodeRecord, asked: NodePool) -> bool:
        """Whether the node is of the pool."""
        return asked.takes(node.labels) and not node.is_joining

    @override
    def reads(self, node: NodeRecord) -> object:
        """Its pool."""
        return self.pool is not None and self.admits(node, self.pool)
