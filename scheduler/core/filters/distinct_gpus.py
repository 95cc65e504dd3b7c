"""Nodes that offer each GPU several times, for pods with several GPUs: two of them may be the same one."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord


class DistinctGpus(Filter):
    """Asked of pods with several GPUs, if that is set (model/settings.py)."""

    kind = "time-slices"
    words = "node(s) offer each GPU several times, so several of them may be the same one"

    @override
    def asked(self, constraints: Constraints) -> bool | None:
        """Whether the pod asks it."""
        return constraints.distinct_gpus or None

    @override
    def admits(self, node: NodeRecord, asked: bool) -> bool:
        """Whether each GPU of the node is offered once."""
        return not node.is_multiplied

    @override
    def reads(self, node: NodeRecord) -> object:
        """What is known of its plugin."""
        return node.is_multiplied
