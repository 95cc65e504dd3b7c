"""Nodes whose kubelet could not align a pod on NUMA nodes even if nobody else were there (Topology Manager)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.alignment import admits, empty
from scheduler.core.filters.filter import Filter
from scheduler.core.model.numa import NumaAsk
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord


class NumaAlignment(Filter):
    """Policies ``restricted`` and ``single-numa-node`` of kubelets. What is free is nodes/numa_statement.py's."""

    kind = "numa"
    words = "node(s) whose kubelet can't align the Pod on NUMA nodes"

    @override
    def asked(self, constraints: Constraints) -> NumaAsk | None:
        """What kubelets align of the pod; nothing where no NodeResourceTopology is read."""
        return constraints.aligned

    @override
    def admits(self, node: NodeRecord, asked: NumaAsk) -> bool:
        """Whether the pod fits with nobody else on the node."""
        return node.numa is None or admits(node.numa, empty(node.numa), asked)

    @override
    def effort(self, asked: NumaAsk) -> int:
        """Each container is put on NUMA nodes."""
        return 4 * len(asked.containers)

    @override
    def reads(self, node: NodeRecord) -> object:
        """What was reported of it."""
        return node.numa
