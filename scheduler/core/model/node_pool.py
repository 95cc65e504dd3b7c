"""The part of a cluster that one scheduler decides on: nodes, pods, PodGroups and Queues with one value of a label.

Several schedulers share a cluster by it (KAI's ``SchedulingShard``, kai-contract 2.5): each object is of exactly one
pool, so no two of them place the same pod, or place pods on the same node.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wire import names
from wire.crds.podgroup import DEFAULT_NODE_POOL


class NodePool(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``value`` "": objects without the label, or with an empty one."""

    key: str = names.NODE_POOL_LABEL
    value: str = ""

    @property
    def name(self) -> str:
        """What events and conditions call it."""
        return self.value or DEFAULT_NODE_POOL

    @property
    def suffix(self) -> str:
        """What names of objects that each scheduler has of its own end in (kai-contract 6.4: its lease)."""
        return f"-{self.value}" if self.value else ""

    @property
    def labels(self) -> dict[str, str]:
        """What an object of this pool is labelled with."""
        return {self.key: self.value} if self.value else {}

    def takes(self, labels: Mapping[str, str] | None) -> bool:
        """Whether an object with these labels is of this pool."""
        return (labels or {}).get(self.key, "") == self.value


def own_name(name: str, pool: NodePool | None) -> str:
    """The name of an object that each scheduler has of its own."""
    return name if pool is None else name + pool.suffix


def name_of(pool: NodePool | None) -> str:
    """What events and conditions call a pool; None: the cluster is not divided."""
    return DEFAULT_NODE_POOL if pool is None else pool.name
