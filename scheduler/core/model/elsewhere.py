"""Pods that schedulers of other node pools decide on.

They count wherever pods count: on their node, for affinity and spread, as holders of volumes. They are in no queue of
this scheduler, are not evicted by it, and what they use of its nodes can't be divided, as with pods of any other
scheduler. Of which pool a pod is its PodGroup says, or its own label as long as no PodGroup of its name is known. A
bound pod stays with the pool whose scheduler placed it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from scheduler.core.model.node_pool import NodePool
from scheduler.core.model.records import PodGroupRecord, PodRecord


class Elsewhere:
    """Says of each pod whether it is one. ``pool`` None: none is, as the cluster is not divided."""

    def __init__(self, pool: NodePool | None, groups: Mapping[tuple[str, str], PodGroupRecord]) -> None:
        self._pool = pool
        self._groups = groups
        #: Those that are, by UID, as they were read: the label of their PodGroup may change.
        self._read: dict[str, PodRecord] = {}

    def seen(self, pod: PodRecord) -> PodRecord:
        """A pod as it counts here."""
        if self._pool is None or not pod.queue or self._is_here(pod):
            self._read.pop(pod.uid, None)
            return pod
        self._read[pod.uid] = pod
        return as_elsewhere(pod)

    def seen_again(self, pod: PodRecord) -> PodRecord:
        """The same of a pod that is known, after its PodGroup has changed."""
        return self.seen(self._read.get(pod.uid, pod))

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._read.pop(uid, None)

    def _is_here(self, pod: PodRecord) -> bool:
        if self._pool is not None and pod.charged is not None and pod.charged.pool is not None:
            return pod.charged.pool == self._pool.value
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        if group is not None:
            return not group.is_elsewhere
        return self._pool is None or self._pool.takes(pod.labels)


def as_elsewhere(pod: PodRecord) -> PodRecord:
    """A pod as it counts for the schedulers of all pools but its own."""
    return msgspec.structs.replace(pod, queue="", moves_as=None, is_foreign=True, is_elsewhere=True)
