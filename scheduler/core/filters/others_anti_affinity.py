"""Domains that required anti-affinity of running pods keeps a pod off (nodes/anti_affinity.py finds them)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.records import Constraints, Domains, NodeRecord


class OthersAntiAffinity(Filter):
    """The domains differ from pod to pod, and with each pod that comes and goes.

    So they are no part of a pod's constraints: the ledger takes the nodes of these domains out of the judgement of
    the constraints (``Ledger.admitting``).
    """

    kind = "others-anti-affinity"
    words = "node(s) didn't satisfy existing pods anti-affinity rules"

    @override
    def asked(self, constraints: Constraints) -> None:
        """Nothing by the constraints."""
        del constraints

    @override
    def admits(self, node: NodeRecord, asked: Domains) -> bool:
        """Whether a node is in none of the domains."""
        return not any(node.labels.get(key) == value for key, value in asked)

    @override
    def reads(self, node: NodeRecord) -> object:
        """The labels."""
        return node.labels
