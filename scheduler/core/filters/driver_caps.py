"""Memory caps that a pod's containers read for NVIDIA's driver (gpu/drivercaps.py)."""

from __future__ import annotations

from typing_extensions import override

from gpu import drivercaps
from gpu.enforcement import DRIVER_CAP
from scheduler.core.filters.filter import Filter
from scheduler.core.model.records import NodeRecord
from wire.core import Pod


class DriverCaps(Filter):
    """Nodes whose runtime has the hook: elsewhere it refuses the containers, or nothing caps them.

    Holds without ``moorage.dev/require-enforcement``.
    """

    kind = "driver-caps"
    words = "node(s) have no GPU memory caps by the driver, which the Pod's containers ask for"

    @override
    def read(self, pod: Pod) -> bool | None:
        """True where a container reads its cap."""
        return drivercaps.are_read(pod.spec) or None

    @override
    def admits(self, node: NodeRecord, asked: bool) -> bool:
        """Whether the node's administrator says that it has such caps."""
        return DRIVER_CAP in node.enforces

    @override
    def reads(self, node: NodeRecord) -> object:
        """The word."""
        return DRIVER_CAP in node.enforces
