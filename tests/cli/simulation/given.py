"""Snapshots of small clusters, and what a comparison finds in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cli.simulation import comparison as changes
from cli.simulation.comparison import Comparison, Scheduling
from cli.simulation.snapshot import comparison
from cli.snapshots.file import KIND, VERSION, Saved
from scheduler.core.model.settings import Settings
from wire.api_groups import PodDisruptionBudget
from wire.core import Namespace, Node, Pod, PriorityClass
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

_LISTS: Final = {
    Node: "nodes",
    Pod: "pods",
    PodGroup: "podgroups",
    Queue: "queues",
    Namespace: "namespaces",
    PriorityClass: "priorityclasses",
    BindRequest: "bindrequests",
    PodDisruptionBudget: "poddisruptionbudgets",
    DeviceClass: "deviceclasses",
    DeviceTaintRule: "devicetaintrules",
    ResourceClaim: "resourceclaims",
    ResourceSlice: "resourceslices",
}
#: As the scheduler keeps it before anybody was evicted.
NO_EVICTIONS: Final = '{"nominations":[],"evicted":{}}'


def snapshot(*objects: Any, room: str | None = None) -> Saved:
    """A snapshot of these objects."""
    lists: dict[str, list[Any]] = {}
    for each in objects:
        lists.setdefault(_LISTS[each.__class__], []).append(each)
    head = Saved(kind=KIND, version=VERSION, taken_at="2026-11-27T08:00:00Z", nominations=room)
    return msgspec.structs.replace(head, **lists)


def compare(
    found: Saved,
    texts: Sequence[str],
    strategy: tuple[str, str] | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen
) -> Comparison:
    """Compare; no ledger may differ from a recount."""
    result, problems = comparison(found, Scheduling(settings, 60.0), changes.read(texts), strategy)
    assert problems == ()
    return result


def told(result: Comparison) -> list[str]:
    """What becomes of each pod, in a line."""
    return [
        f"{pod.name} {pod.change.value} {pod.node_without or '-'} {pod.node_with or pod.reason or '-'}"
        for pod in result.pods
    ]
