"""What queues hold, request and are due, counted by the scheduler's core from the page's objects. Pure.

Each pod has a row in the core's sums, counted again when something about it was marked; shares are divided again when a
sum has changed. So a change costs that of its pods and one division. Rows know no earlier version of an object, so a
recorded run may be shown backwards as well.

What the page has read of a cluster, counted as the scheduler counts it: for questions why a pod waits. Pure.

The page keeps less of pods than a scheduler (``objects.kept``): no volumes, and of pods without GPUs no affinity.
It reads no ResourceClaims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from scheduler.conditions.messages import told
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import bind_request_record, pod_record
from scheduler.core.convert.queues import queue_record
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import as_elsewhere
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.sums import Row
from scheduler.core.queues.tree import Tree
from scheduler.core.queues.use_over_time import UseOverTime
from scheduler.core.report.queue_view import QueueView, queue_views
from ui.page.objects import Key, Marks, Objects
from ui.queues.count import Counting, EvictionsRead, Known
from ui.queues.pools import About, pool_of
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

_UNUSED: Final[Mapping[str, UseOverTime]] = {}
_NO_ROOMS: Final[Mapping[str, EvictionsRead]] = {}
#: No answer of the page rests on these.
NOT_KEPT: Final = "volumes and ResourceClaims of pods, and affinity of pods without GPUs: the page does not keep them"


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Objects as they were at one moment. They are never changed, so another thread may count them.

    ``wall_s``: the time of it. ``rooms``: records of evictions, as far as they are known, and ``used``: what queues
    used over time, both by node pool. ``unread``: what is missing.
    """

    wall_s: int
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    groups: Sequence[PodGroup]
    requests: Sequence[BindRequest]
    queues: Sequence[Queue]
    rooms: Mapping[str, EvictionsRead] = _NO_ROOMS
    used: Mapping[str, UseOverTime] = _UNUSED
    unread: tuple[str, ...] = ()


def listed(
    objects: Objects,
    wall_s: int,
    *,
    rooms: Mapping[str, EvictionsRead] = _NO_ROOMS,
    used: Mapping[str, UseOverTime] = _UNUSED,
    unread: Sequence[str] = (),
) -> Listed:
    """List what the page has. ``wall_s``: the time of it."""
    return Listed(
        wall_s=wall_s,
        nodes=tuple(objects.nodes.values()),
        pods=tuple(objects.pods.values()),
        groups=tuple(objects.groups.values()),
        requests=tuple(objects.requests.values()),
        queues=tuple(objects.queues.values()),
        rooms=rooms,
        used=used,
        unread=(*unread, NOT_KEPT),
    )


def counted(there: Listed, about: About | None = None) -> Known:
    """Count it, for the scheduler that decides on an object. The time grows with the number of pods."""
    counting = Counting(may_preempt=bool(there.rooms), about=about)
    return counting.count(
        there.nodes,
        map(counting.read_pod, there.pods),
        found=there.queues,
        groups=there.groups,
        requests=there.requests,
        used=there.used,
        rooms=there.rooms,
        unread=there.unread,
    )


_SETTINGS: Final = Settings()
#: Pods or nodes that are counted before other tasks run: about 50 us each.
_PER_TURN: Final = 64
_NO_GROUP: Final = ("", None)


class QueueCounts:
    """Counts of ``objects``, as of what was marked when they were last brought up to date.

    Queues divide the nodes of their node pool. Pods of a pool without nodes and Queues count in none: anybody can write
    such a label.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        #: By the value of the pool's label, "" for what has none.
        self._pools: dict[str, Queues] = {}
        self._nodes: dict[str, NodeRecord] = {}
        #: By UID: of pods that count, here or off what queues divide.
        self._pods: dict[str, PodRecord] = {}
        #: In which pool each of them counts.
        self._counted_in: dict[str, str] = {}
        self._groups: dict[Key, tuple[str, PodGroupRecord]] = {}
        #: What was shown last of each pool, and of what: the tree, the version of the sums, and what is divided.
        self._made: dict[str, tuple[tuple[Tree, int, Resources], list[QueueView]]] = {}

    @property
    def pools(self) -> Set[str]:
        """Pools that have had nodes or Queues."""
        return self._pools.keys()

    def update(self, marks: Marks) -> Iterator[None]:
        """Count again what is marked; yields now and then, so that others get a turn."""
        before = set(self._pools)
        for name in marks.queues:
            self._read_queue(name)
        pods, nodes = dict(marks.pods), dict(marks.nodes)
        for key in marks.groups:
            for pod in self._read_group(key):
                pods[pod.metadata.uid] = None
                if pod.spec.node_name:
                    nodes[pod.spec.node_name] = None  # in another pool it may count off what queues divide
        yield from _in_turns(pods, self._read_pod)
        yield from _in_turns(nodes, lambda name: pods.update(dict.fromkeys(self._read_node(name))))
        if self._pools.keys() - before:
            pods |= dict.fromkeys(self._pods)
        yield from _in_turns(pods, self._count)

    def views(self) -> list[QueueView]:
        """All queues; of each pool the same values as long as nothing about them has changed."""
        return [view for pool, queues in self._pools.items() for view in self._views(pool, queues)]

    def _views(self, pool: str, queues: Queues) -> list[QueueView]:
        made = queues.accounts()
        made_of = made.tree, queues.sums.version, made.total
        known = self._made.get(pool)
        if known is None or known[0] != made_of:
            views = queue_views(queues, made, lambda verdict: told(verdict).message)
            known = self._made[pool] = made_of, views
        return known[1]

    def _pool(self, value: str) -> Queues:
        """The queues of a pool, which has something of its own."""
        found = self._pools.get(value)
        if found is None:
            found = self._pools[value] = Queues(_tell_nobody, pool=NodePool(value=value))
        return found

    # --- reading -----------------------------------------------------------------------------------------------------
    def _read_queue(self, name: str) -> None:
        queue = self._objects.queues.get(name)
        here = None if queue is None else self._pool(pool_of(queue.metadata.labels))
        for queues in self._pools.values():
            if queues is not here and (known := queues.records.get(name)) is not None:
                queues.records.drop(known)
        if queue is not None and here is not None:
            here.records.put(queue_record(queue))

    def _read_group(self, key: Key) -> Iterable[Pod]:
        """Read a PodGroup; return the pods whose counts change with it."""
        group, known = self._objects.groups.get(key), self._groups.pop(key, None)
        if group is not None:
            self._groups[key] = pool_of(group.metadata.labels), pod_group_record(group)
        return () if _counts(self._groups.get(key)) == _counts(known) else self._objects.members(key)

    def _read_pod(self, uid: str) -> None:
        pod = self._objects.pods.get(uid)
        record = pod_record(pod, _SETTINGS) if pod is not None else None
        if record is None:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = record

    def _read_node(self, name: str) -> Iterable[str]:
        """Read a node; return the pods (UIDs) whose counts change with it."""
        node, known = self._objects.nodes.get(name), self._nodes.pop(name, None)
        here = [pod.metadata.uid for pod in self._objects.pods_on(name)]
        record = node_record(node) if node is not None else None
        is_other = False
        if known is not None and (record is None or pool_of(known.labels) != pool_of(record.labels)):
            is_other = self._pool(pool_of(known.labels)).drop_node(name)
        if record is not None:
            self._nodes[name] = record
            pool = pool_of(record.labels)
            there = [self._as_seen(self._pods[uid], pool) for uid in here if uid in self._pods]
            is_other |= self._pool(pool).count_node(record, there)
        changed = here if _card(record) != _card(known) else []
        return [*changed, *(uid for uid, pod in self._pods.items() if not pod.node)] if is_other else changed

    def _as_seen(self, pod: PodRecord, pool: str) -> PodRecord:
        """A pod as the scheduler of a pool counts it."""
        return pod if not pod.queue or self._pool_of(pod) == pool else as_elsewhere(pod)

    def _pool_of(self, pod: PodRecord) -> str:
        """The one that it was placed by, else that of its PodGroup, where that is known."""
        if pod.charged is not None and pod.charged.pool is not None:
            return pod.charged.pool
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        return pool_of(pod.labels) if group is None else group[0]

    # --- counting ----------------------------------------------------------------------------------------------------
    def _count(self, uid: str) -> None:
        pod = self._pods.get(uid)
        pool = None if pod is None else self._pool_of(pod)
        before = self._counted_in.pop(uid, None)
        if before is not None and before != pool:
            self._pools[before].sums.put(uid, None)
        if pod is not None and pool in self._pools:
            self._counted_in[uid] = pool
            self._pools[pool].sums.put(uid, self._row(pod, self._pools[pool]))

    def _row(self, pod: PodRecord, queues: Queues) -> Row | None:
        _, group = self._groups.get((pod.namespace, pod.pod_group), _NO_GROUP) if pod.pod_group else _NO_GROUP
        charges = () if pod.node else tuple(self._charges(pod, group))
        return queues.row(pod, group, charges, self._nodes.get(pod.node))

    def _charges(self, pod: PodRecord, group: PodGroupRecord | None) -> Iterator[Charge]:
        """Where a pod is on its way to, or has a place in its group's plan."""
        request = self._objects.requests.get((pod.namespace, pod.name))
        record = bind_request_record(request) if request is not None else None
        if record is not None and record.pod_uid == pod.uid:
            yield Charge(pod_uid=pod.uid, node=record.node, devices=record.devices, charged=record.charged)
        planned = group.planned.get(pod.uid) if group is not None else None
        if planned is not None:
            yield Charge(pod_uid=pod.uid, node=planned.node, devices=planned.devices)


def _in_turns(names: Iterable[str], do: Callable[[str], None]) -> Iterator[None]:
    for number, name in enumerate(names, 1):
        do(name)
        if number % _PER_TURN == 0:
            yield


def _counts(read: tuple[str, PodGroupRecord] | None) -> object:
    """What of a PodGroup, and its pool, says where and as what its pods count."""
    return None if read is None else (read[0], read[1].queue, read[1].is_preemptible, read[1].planned)


def _tell_nobody() -> None:
    return


def _card(node: NodeRecord | None) -> int:
    """What pods without a grant count for depends on the cards of their node."""
    return node.smallest_card_mib if node is not None else 0
