"""Resources of other systems in the status of nodes: left there at 0 by one that has gone, or still offered.

Kubelet keeps the resource of a device plugin that has gone at 0, for ever, and refuses pods that ask for it
(docs/design/real-node.md). Our own placement does not care; people, other schedulers and autoscalers are misled.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from cli.checks.reader import Finding, Level, Raw, Reader, some_of
from gpu.dialects import aliyun, clearml, replicas
from gpu.dialects.settings import MetagpuSettings
from wire import names
from wire.quantity import MalformedQuantity, parse_nano

_CHECK: Final = "node resources"
_NAMES: Final = frozenset(
    {
        aliyun.MEMORY,
        aliyun.COUNT,
        MetagpuSettings().resource,
        names.HAMI_MEMORY,
        names.HAMI_MEMORY_PERCENTAGE,
        names.HAMI_CORES,
        replicas.SHARED,
        "nvidia.com/sharedgpu",
    }
)
#: All that begins so is of Volcano, Koordinator, or ClearML's cards by index.
_PREFIXES: Final = ("volcano.sh/vgpu-", "volcano.sh/gpu-", names.KOORDINATOR_GPU, clearml.INDEXED_PREFIX)


class Offer(msgspec.Struct, frozen=True):
    """One resource of a node as its status says it; None where it does not name it."""

    resource: str
    capacity: str | None
    allocatable: str | None

    @property
    def is_left_over(self) -> bool:
        """Whether nothing is offered, and there is nothing that could be."""
        return _is_zero(self.capacity) and _is_zero(self.allocatable)


def foreign_offers(node: Raw, *, also: Collection[str] = ()) -> list[Offer]:
    """Return the resources of other systems that a node names; ``also``: further names, of renamed ones."""
    status = node.get("status") or {}
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    found = sorted(name for name in {**capacity, **allocatable} if _is_foreign(name) or name in also)
    return [Offer(name, capacity.get(name), allocatable.get(name)) for name in found]


async def check_node_resources(reader: Reader) -> list[Finding]:
    """No node names resources of other systems."""
    left: dict[str, list[str]] = {}
    offered: dict[str, list[str]] = {}
    for node in await reader.items("/api/v1/nodes"):
        for offer in foreign_offers(node):
            kind = left if offer.is_left_over else offered
            kind.setdefault(offer.resource, []).append(node["metadata"]["name"])
    found = [_left(resource, nodes) for resource, nodes in sorted(left.items())]
    found += [_offered(resource, nodes) for resource, nodes in sorted(offered.items())]
    return found or [Finding(Level.OK, _CHECK, "no node names resources of other systems")]


def _left(resource: str, nodes: list[str]) -> Finding:
    said = f"{resource} is left at 0 on {some_of(nodes)} by a device plugin that has gone"
    return Finding(Level.WARNING, _CHECK, said, "see what moorage admin clean-nodes would remove")


def _offered(resource: str, nodes: list[str]) -> Finding:
    said = f"{resource} is offered on {some_of(nodes)} by another system, which may give away GPUs that we give, too"
    return Finding(Level.WARNING, _CHECK, said, "keep it and Moorage on nodes of their own")


def _is_foreign(resource: str) -> bool:
    return resource in _NAMES or resource.startswith(_PREFIXES)


def _is_zero(amount: str | None) -> bool:
    try:
        return amount is None or parse_nano(amount) == 0
    except MalformedQuantity:
        return False
