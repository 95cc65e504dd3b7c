"""S12: what the scheduler believes is used equals a recount from the API objects.

A ``Ledger`` is what one running scheduler has in its books just now, as plain numbers (simulator/peeking.py); the
recount is simulator/checks/counting.py's. They are compared only when nothing is under way: every watch has been told
everything, the scheduler has no commit open, and there is no BindRequest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from simulator.checks.counting import NANO, NodeFacts, NodeUse
from wire import names


@dataclass(frozen=True, slots=True)
class Row:
    """One node in a scheduler's ledger: what is free, and of each shared device what is left of it.

    ``devices``: whole ones by resource, as far as the scheduler has a number for it.
    """

    cpu_milli: int
    mem_mib: int
    pods: int
    devices: Mapping[str, int]
    shared_nano: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a scheduler believes. ``is_busy``: a commit of its own is under way, or a gang's plan is not carried out."""

    scheduler: str
    is_busy: bool
    rows: Mapping[str, Row]
    #: Node -> resource -> the most of it that counts, while slices are about to be destroyed (docs/mig.md).
    caps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def differences(row: Row, node: NodeFacts, use: NodeUse, caps: Mapping[str, int]) -> Iterator[str]:
    """Yield where a row differs from the count of its node. ``caps``: of resources of which not all counts."""
    counted = {
        "milli of CPU": (row.cpu_milli, node.cpu_milli - use.cpu_milli),
        "MiB of memory": (row.mem_mib, node.mem_mib - use.mem_mib),
        "pod slots": (row.pods, node.pods - use.pods),
        "GPUs": (row.devices.get(names.GPU_RESOURCE, 0), node.gpus - use.gpus),
    }
    for resource in sorted({*row.devices, *node.devices} - {names.GPU_RESOURCE}):
        has = min(node.devices.get(resource, 0), caps.get(resource, node.devices.get(resource, 0)))
        believed = row.devices.get(resource, 0)
        # Pods may have slices that their Node does not tell: none of them is free then, and no number is kept of that.
        counted[resource] = (believed, has - use.devices[resource]) if has else (max(believed, 0), 0)
    for what, (believed, free) in counted.items():
        if believed != free:
            yield f"{node.name}: {believed} {what} free, a recount gives {free}"
    for group in sorted({*row.shared_nano, *use.groups}):
        believed, free = row.shared_nano.get(group, NANO), use.free_nano(group)
        if believed != free:
            yield f"{node.name}: {believed} nano free in group {group}, a recount gives {free}"
