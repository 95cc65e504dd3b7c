"""How many slices of a node count while some of them are about to be destroyed: nobody else is placed on those.

kubelet says so a while later than the scheduler has asked for it, and the Node a while after kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from scheduler.core.model.records import NodeRecord


class SliceCaps:
    """By node: the most that counts of a resource, also where its Node says more."""

    __slots__ = ("_caps", "_read")

    def __init__(self) -> None:
        self._caps: dict[str, Mapping[str, int]] = {}
        #: Records of capped nodes, as they were read.
        self._read: dict[str, NodeRecord] = {}

    @property
    def of(self) -> Mapping[str, Mapping[str, int]]:
        """By node: the most that counts, by resource."""
        return self._caps

    def put(self, node: NodeRecord, caps: Mapping[str, int]) -> NodeRecord:
        """Cap a node; with nothing to cap it counts as it was read. Returns the record that counts now."""
        read = self._read.get(node.name, node)
        if caps:
            self._caps[node.name] = dict(caps)
            return self.capped(read)
        self.forget(node.name)
        return read

    def capped(self, read: NodeRecord) -> NodeRecord:
        """Return the record that counts of one that was read."""
        caps = self._caps.get(read.name)
        if caps is None:
            return read
        self._read[read.name] = read
        extended = tuple(
            (name, most) for name, amount in read.capacity.extended if (most := min(amount, caps.get(name, amount))) > 0
        )
        return msgspec.structs.replace(read, capacity=msgspec.structs.replace(read.capacity, extended=extended))

    def forget(self, name: str) -> None:
        """Forget a node."""
        self._caps.pop(name, None)
        self._read.pop(name, None)
