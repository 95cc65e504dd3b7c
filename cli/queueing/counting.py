"""A cluster that was read once, counted as the scheduler counts it, for what is shown of queues.

Claims of volumes and Jobs of pods are not read. They may keep a pod waiting, but change nothing about what it counts
for: the order of queues is shown as if they kept nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.convert import queues
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.records import SeenPod
from scheduler.core.model.settings import Settings
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

#: Nothing that is read once has a past: no back-off, no deadline.
NOW_NS: Final = 0


class Known(msgspec.Struct, frozen=True):
    """``snapshot``: what a decision would read. ``unread``: what could not be read, and so is missing in it."""

    snapshot: Snapshot
    unread: tuple[str, ...] = ()


class Counting:
    """Takes objects of all kinds that queues depend on."""

    def __init__(self) -> None:
        self._cluster = Cluster(Settings())

    def read_pod(self, pod: Pod) -> SeenPod:
        """Keep of a pod what is counted."""
        seen = self._cluster.read_pod(pod)
        if seen.record is None:
            return seen
        record = msgspec.structs.replace(seen.record, claims=(), job="", job_name="")
        return msgspec.structs.replace(seen, record=record)

    def count(
        self,
        nodes: Iterable[Node],
        pods: Iterable[SeenPod],
        *,
        found: Iterable[Queue],
        groups: Iterable[PodGroup] = (),
        requests: Iterable[BindRequest] = (),
        used: UseOverTime = NOT_COUNTED,
        unread: Sequence[str] = (),
    ) -> Known:
        """Count everything."""
        cluster = self._cluster
        for node in nodes:
            cluster.upsert_node(node)
        for group in groups:
            cluster.upsert_pod_group(group)
        for request in requests:
            cluster.upsert_bind_request(request)
        for pod in pods:
            cluster.take_pod(pod)
        cluster.queues.records.replace(queues.queue_record(queue) for queue in found)
        cluster.queues.note_use_over_time(used)
        return Known(cluster.prepared(NOW_NS), tuple(unread))
