"""Limits of GPUs that a pod wants to be enforced (gpu/enforcement.py)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.records import Constraints, NodeRecord


class Enforcement(Filter):
    """What the node says that it enforces."""

    kind = "enforcement"
    words = "node(s) do not enforce the GPU limits that the Pod requires"

    @override
    def asked(self, constraints: Constraints) -> tuple[str, ...] | None:
        """Words of which the node has to have each."""
        return constraints.enforced or None

    @override
    def admits(self, node: NodeRecord, asked: tuple[str, ...]) -> bool:
        """Whether it has them."""
        return {*asked} <= {*node.enforces}

    @override
    def reads(self, node: NodeRecord) -> object:
        """The words."""
        return tuple(node.enforces)
