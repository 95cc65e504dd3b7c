"""What runs, as far as it can end: pods alone and PodGroups, with their bound pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.records import PodRecord
from scheduler.core.model.steps import Steps, ended
from scheduler.core.queues.use import queue_of

#: Pods that are read in one step; and what one costs, and what a unit does, in operations.
_AT_ONCE: Final = 512
_READING: Final = 2
_GROUPING: Final = 8


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """``name`` of the pod or PodGroup. ``pods``: bound ones that count in a queue. ``gpu_nano``: what they hold."""

    kind: str
    namespace: str
    name: str
    queue: str
    pods: tuple[PodRecord, ...]

    @property
    def uids(self) -> tuple[str, ...]:
        """Of its pods."""
        return tuple(pod.uid for pod in self.pods)

    @property
    def gpu_nano(self) -> int:
        """GPUs, whole and in parts."""
        return sum(gpu_nano(pod) for pod in self.pods)


def gpu_nano(pod: PodRecord) -> int:
    """What a bound pod holds of GPUs."""
    return pod.cls.demand.gpus * NANO_PER_DEVICE + sum(held.nano or 0 for held in pod.held)


def running(snapshot: Snapshot, besides: Iterable[str] = ()) -> list[Running]:
    """All that run, smallest first; not pods (UIDs) of ``besides``, and none that are terminating."""
    return ended(finding_running(snapshot, besides))


def finding_running(snapshot: Snapshot, besides: Iterable[str] = ()) -> Steps[list[Running]]:
    """Find them in steps. The pods are those of the first step."""
    left_out = {*besides}
    parts: dict[tuple[str, str, str], list[PodRecord]] = {}
    for number, pod in enumerate([*snapshot.pods.records.values()], 1):
        if number % _AT_ONCE == 0:
            yield _AT_ONCE * _READING
        if pod.node and pod.queue and not (pod.is_reservation or pod.deleting or pod.uid in left_out):
            kind, name = ("PodGroup", pod.pod_group) if pod.pod_group else ("Pod", pod.name)
            parts.setdefault((kind, pod.namespace, name), []).append(pod)
    found = []
    for number, ((kind, namespace, name), pods) in enumerate(parts.items()):
        if number % _AT_ONCE == 0:
            yield _AT_ONCE * _GROUPING
        group = snapshot.pod_group(namespace, name) if kind == "PodGroup" else None
        queue = queue_of(pods[0], group)
        each = Running(kind=kind, namespace=namespace, name=name, queue=queue, pods=tuple(pods))
        found.append((each.gpu_nano, len(pods), namespace, name, number, each))
    found.sort()
    return [each[-1] for each in found]
