"""What pods that wait would use of their queue, before and after it is known where they go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpu.handover import PlannedDevice
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.use import is_fixed, of_counts, of_pods, planned, queue_of


def least(snapshot: Snapshot, pods: Sequence[PodRecord]) -> Use:
    """The least that these pods, of one gang or a single one, come to use wherever they are placed."""
    return _use(snapshot, pods, of_pods(pods, snapshot.queues.least))


def asked(snapshot: Snapshot, pods: Sequence[PodRecord]) -> Use:
    """What these pods ask, as it counts while they wait."""
    return _use(snapshot, pods, of_pods(pods, snapshot.queues.asked))


def placed(snapshot: Snapshot, pod: PodRecord, placement: Placement) -> Use:
    """What a pod uses where it is placed: memory is a larger part of a smaller card (kai-contract 14.4)."""
    return _use(snapshot, [pod], planned(pod.cls.demand, placement.devices, claimed_nano=placement.claimed_nano))


def planned_for(snapshot: Snapshot, pod: PodRecord, devices: Iterable[PlannedDevice]) -> Use:
    """What a pod uses on the devices that are planned for it."""
    return _use(snapshot, [pod], planned(pod.cls.demand, devices))


def _use(snapshot: Snapshot, pods: Sequence[PodRecord], amounts: Resources) -> Use:
    pod = pods[0]
    group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
    # Of a gang that can be preempted in part only that part counts against quotas: each is looked at where it goes.
    are_fixed = all(is_fixed(each, group) for each in pods)
    return Use(queue_of(pod, group), amounts, are_fixed)


def asked_of(snapshot: Snapshot, counts: Iterable[tuple[PodClass, int]]) -> Resources:
    """What these numbers of pods of these classes ask."""
    return of_counts(counts, snapshot.queues.asked)


def least_of(snapshot: Snapshot, counts: Iterable[tuple[PodClass, int]]) -> Resources:
    """The least that these numbers of pods of these classes come to use."""
    return of_counts(counts, snapshot.queues.least)
