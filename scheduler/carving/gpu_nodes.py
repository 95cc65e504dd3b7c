"""What GpuNodes show of GPUs in MIG mode, as the watch brings it."""

from __future__ import annotations

from collections.abc import Sequence

from kube.watch.signal import Signal
from scheduler.core.convert.nodes import mig_node
from scheduler.core.model.mig import MigNode
from wire.crds.gpunode import GpuNode
from wire.versions import is_older


class GpuNodeSink:
    """Follows GpuNodes. Those without a GPU in MIG mode are not kept."""

    def __init__(self, wake: Signal) -> None:
        self._wake = wake
        self.nodes: dict[str, MigNode] = {}

    def keep(self, obj: GpuNode) -> MigNode:
        """What is kept of a GpuNode."""
        return mig_node(obj)

    async def replace(self, kept: Sequence[MigNode]) -> None:
        """Take a list: what is not in it is gone."""
        self.nodes.clear()  # a look that is under way sees it
        self.nodes |= {node.name: node for node in kept if node.cards}
        self._wake.set()

    def upsert(self, obj: GpuNode) -> None:
        """Take a GpuNode, from the watch or as the answer to a write."""
        node, known = self.keep(obj), self.nodes.get(obj.metadata.name)
        if known is not None and is_older(node.rv, known.rv):
            return
        if node.cards:
            self.nodes[node.name] = node
        else:
            self.nodes.pop(node.name, None)
        self._wake.set()

    def delete(self, obj: GpuNode) -> None:
        """Take a GpuNode's last state."""
        self.nodes.pop(obj.metadata.name, None)
        self._wake.set()

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in. What is known stays: agents refuse what is not true any more."""
        if is_in_step:
            self._wake.set()
