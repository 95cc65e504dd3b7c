"""Limits of GPUs that a pod wants to be enforced (gpu/enforcement.py)."""

from __future__ import annotations

from typing_extensions import override

from gpu.enforcement import does, lacking
from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints, PodClass
from scheduler.core.model.records import NodeRecord


class Enforcement(Filter):
    """What the node says that it enforces."""

    kind = "enforcement"
    words = "node(s) do not enforce the GPU limits that the Pod requires"

    @override
    def asked(self, constraints: Constraints) -> tuple[str, ...] | None:
        """Words of which the node has to do each."""
        return constraints.enforced or None

    @override
    def admits(self, node: NodeRecord, asked: tuple[str, ...]) -> bool:
        """Whether it does."""
        return all(does(word, node.enforces) for word in asked)

    @override
    def reads(self, node: NodeRecord) -> object:
        """The words."""
        return tuple(node.enforces)


def unenforced(cls: PodClass, node: NodeRecord) -> tuple[str, ...]:
    """What the node can't enforce of the wishes of this class, in its words."""
    return lacking(cls.wishes, node.enforces, by_driver=cls.driver_caps, by_agents=cls.by_agents)
