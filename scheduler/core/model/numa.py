"""NUMA nodes of a node, and what containers of a pod have to get from the same ones."""

from __future__ import annotations

import msgspec

#: Resource and amount, sorted; CPUs in milli, all else in whole numbers.
Amounts = tuple[tuple[str, int], ...]


class NumaZone(msgspec.Struct, frozen=True, gc=False):
    """A NUMA node. Amounts in the order of ``NumaRecord.resources``, as its kubelet or an exporter reports them."""

    id: int
    capacity: tuple[int, ...]
    allocatable: tuple[int, ...]
    available: tuple[int, ...]


class NumaRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node whose kubelet refuses pods that it can't align. ``resources``: those that its NUMA nodes have.

    ``is_single``: policy ``single-numa-node``; else it is ``restricted``. ``by_pod``: all containers of a pod are
    aligned together, else each one alone. ``zones``: by their number.
    """

    node: str
    is_single: bool
    by_pod: bool
    resources: tuple[str, ...]
    zones: tuple[NumaZone, ...]


class NumaReport(msgspec.Struct, frozen=True, gc=False):
    """What a NodeResourceTopology says. ``record`` None: the kubelet refuses nobody, or the object can't be judged."""

    node: str
    record: NumaRecord | None

    @property
    def key(self) -> str:
        """The node."""
        return self.node


class AlignedPart(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What one container gets aligned. ``is_brief``: it ends before others start, which get the same again."""

    amounts: Amounts
    is_brief: bool = False


class NumaAsk(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod gets aligned: container by container, and as a whole."""

    containers: tuple[AlignedPart, ...]
    whole: Amounts
