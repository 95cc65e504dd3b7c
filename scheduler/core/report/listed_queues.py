"""Queues of a cluster that was listed once, counted as the scheduler counts them, without all that decides.

A cluster that decides (scheduler/core/cluster.py) needs NumPy and the backlog, which take longer to import than queues
to count. Pods, commits and queues are kept here by the same modules; only the order is simpler, as nothing
changes after the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from scheduler.core.assumed.commits import Commits
from scheduler.core.convert import bounds
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pod_lists import AlikePods
from scheduler.core.convert.pods import bind_request_record
from scheduler.core.convert.queues import queue_record
from scheduler.core.groups.quorum import Succeeded
from scheduler.core.model.records import NodeRecord, PodGroupRecord, SeenPod
from scheduler.core.model.seen_pods import Elsewhere, News, Pods
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.sums import Row
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue


class Listed(msgspec.Struct, frozen=True):
    """All that turns and shares of queues depend on, counted. To be read only."""

    queues: Queues
    pods: Pods
    groups: Mapping[tuple[str, str], PodGroupRecord]
    commits: Commits
    succeeded: Succeeded


class ListedQueues:
    """Takes the objects that queues depend on. Read pods first: only what counts of them is kept.

    ``pool``: of whose scheduler queues are counted, whose queues alone are then to be given; None: the cluster is not
    divided.
    """

    def __init__(self, pool: NodePool | None = None) -> None:
        self._settings = Settings(pool=pool)
        self._alike = AlikePods(self._settings)
        self._pods = Pods()
        self._commits = Commits(self._pods, settings=self._settings, changed=_tell_nobody, touched=_tell_nobody)
        self._nodes: dict[str, NodeRecord] = {}
        self._groups: dict[tuple[str, str], PodGroupRecord] = {}
        self._elsewhere = Elsewhere(pool, self._groups)
        self._succeeded = Succeeded()
        self._queues = Queues(_tell_nobody, pool=pool)

    def read_pod(self, pod: Pod) -> SeenPod:
        """Keep of a pod what is counted."""
        return self.interned(self._alike.read(pod))

    def interned(self, seen: SeenPod) -> SeenPod:
        """Return a pod that was read with the classes that are kept here.

        Of too many names of resources the first are kept: pods may be read before nodes, which say what they offer.
        """
        if seen.record is None:
            return seen
        cls = seen.record.cls
        if (demand := bounds.first_resources(cls.demand)) is not cls.demand:
            cls = msgspec.structs.replace(cls, demand=demand)
        record = msgspec.structs.replace(seen.record, cls=self._pods.intern(cls))
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
    ) -> Listed:
        """Count everything, once."""
        for node in nodes:
            self._nodes[node.metadata.name] = node_record(node)
        for group in (pod_group_record(each, self._settings.pool) for each in groups):
            self._groups[group.namespace, group.name] = group
            if group.planned:
                self._commits.promises.put(group)
        for request in map(bind_request_record, requests):
            if request is not None:
                self._commits.hand_overs.put(request)
        for seen in pods:
            self._take(seen)
        self._queues.records.replace(map(queue_record, found))
        self._queues.note_use_over_time(used)
        for name, record in self._nodes.items():
            self._queues.count_node(record, self._pods.bound_to(name))
        self._queues.mark(self._pods.records)
        self._queues.count(self._row_of)
        return Listed(self._queues, self._pods, self._groups, self._commits, self._succeeded)

    def _take(self, seen: SeenPod) -> None:
        if seen.succeeded is not None:
            self._succeeded.put(seen.succeeded)
        if seen.has_ended:
            self._commits.pod_gone(seen.uid)
            return
        if seen.reservation is not None:
            self._pods.put_reservation(seen.reservation)
            self._commits.reservation_seen(seen.reservation, None)
        record = None if seen.record is None else self._elsewhere.seen(seen.record)
        if record is not None and self._pods.put(record) is News.CONTENT:
            self._commits.pod_seen(seen.uid, is_bound=bool(record.node))

    def _row_of(self, uid: str) -> Row | None:
        pod = self._pods.records[uid]
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        charges = () if pod.node else self._commits.charges_of(uid)
        return self._queues.row(pod, group, charges, self._nodes.get(pod.node))


def _tell_nobody(*_: str) -> None:
    return
