"""Limits of GPUs that a pod wants to be enforced, and memory caps that its containers read for NVIDIA's driver.

What they are is in gpu/limits.py.
"""

from __future__ import annotations

from typing_extensions import override

from gpu import limits
from gpu.limits import DRIVER_CAP, does, lacking
from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints, PodClass
from scheduler.core.model.records import NodeRecord
from wire.core import Pod


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


class DriverCaps(Filter):
    """Nodes whose runtime has the hook: elsewhere it refuses the containers, or nothing caps them.

    Holds without ``moorage.dev/require-enforcement``.
    """

    kind = "driver-caps"
    words = "node(s) have no GPU memory caps by the driver, which the Pod's containers ask for"

    @override
    def read(self, pod: Pod) -> bool | None:
        """True where a container reads its cap."""
        return limits.are_read(pod.spec) or None

    @override
    def admits(self, node: NodeRecord, asked: bool) -> bool:
        """Whether the node's administrator says that it has such caps."""
        return DRIVER_CAP in node.enforces

    @override
    def reads(self, node: NodeRecord) -> object:
        """The word."""
        return DRIVER_CAP in node.enforces
