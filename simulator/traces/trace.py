"""A trace: nodes, and pods in the order of their names, as values."""

from __future__ import annotations

from typing import Final

import msgspec

MILLI_PER_GPU: Final = 1_000
#: Bounds of what is read: more is refused.
MOST_NODES: Final = 100_000
MOST_PODS: Final = 1_000_000
MOST_GPUS: Final = 64
MOST_AMOUNT: Final = 1 << 40


class MalformedTrace(ValueError):
    """Raised when a trace can't be read; the message names file, line, field, value and what is allowed."""


class TraceNode(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node; ``model``: of its GPUs, "" if unknown."""

    name: str
    cpu_milli: int
    mem_mib: int
    gpus: int
    model: str = ""


class Ask(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What a pod asks: ``gpus`` devices, ``gpu_milli`` of each (below 1,000 for one device only), of some models."""

    cpu_milli: int
    mem_mib: int
    gpus: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Milli-GPU in all."""
        return self.gpus * self.gpu_milli

    @property
    def is_shared(self) -> bool:
        """Whether it asks a part of one GPU."""
        return self.gpus == 1 and self.gpu_milli < MILLI_PER_GPU


class TracePod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod; ``lived_s``: from its creation to its end, None if the trace does not say."""

    name: str
    ask: Ask
    lived_s: int | None = None


class Trace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Nodes by name and pods by name."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    def part(self, step: int) -> Trace:
        """Return every ``step``-th node and pod."""
        return Trace(nodes=self.nodes[::step], pods=self.pods[::step])

    @property
    def capacity_milli(self) -> int:
        """Milli-GPU of all nodes."""
        return sum(node.gpus for node in self.nodes) * MILLI_PER_GPU
