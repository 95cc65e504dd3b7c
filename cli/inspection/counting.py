"""A cluster as it was read once, counted by the functions that the scheduler counts by.

The scheduler's own cluster (scheduler/core/cluster.py) follows events, decides, and needs NumPy for that: importing it
took a third of what ``inspect`` takes. Here each object is taken once, and nothing is decided; a test holds both to the
same views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from scheduler.core.assumed.commits import Commits
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import bind_request_record, seen_pod
from scheduler.core.model.pod_kind import Kind, kind_of
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Occupancy, occupancy
from scheduler.core.report.fragmentation import (
    Cause,
    NodeLeft,
    counted_kinds,
    node_left,
    unusable_in_sum,
    waiting_kinds,
)
from scheduler.core.report.node_view import Known, NodeView, node_view
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest


class Beside(msgspec.Struct, frozen=True, gc=False):
    """What pods take of a node that have nothing to do with GPUs: CPU in milli-cores, memory in MiB, pod slots."""

    cpu_milli: int = 0
    mem_mib: int = 0
    pods: int = 0

    def __add__(self, other: Beside) -> Beside:
        """Both together."""
        return Beside(self.cpu_milli + other.cpu_milli, self.mem_mib + other.mem_mib, self.pods + other.pods)


class Count:
    """Nodes, hand-overs and pods of one moment; take each once, pods last."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._nodes: dict[str, NodeRecord] = {}
        self._pods = Pods()
        self._commits = Commits(self._pods, settings=settings, changed=_nothing, touched=_nothing)

    def upsert_node(self, node: Node) -> None:
        """Take a node."""
        record = node_record(node)
        self._nodes[record.name] = record

    def upsert_bind_request(self, request: BindRequest) -> None:
        """Take a hand-over. One without a readable charge is nobody's."""
        record = bind_request_record(request)
        if record is not None:
            self._commits.hand_overs.put(record)

    def upsert_pod(self, pod: Pod) -> None:
        """Take a pod. One that has ended holds nothing any more, except as a reservation with a book."""
        seen = seen_pod(pod, self._settings)
        if seen.reservation is not None:
            self._pods.put_reservation(seen.reservation)
            self._commits.reservation_seen(seen.reservation, None)
        if not seen.has_ended:
            if seen.record is not None:
                self._pods.put(seen.record)
                self._commits.pod_seen(seen.uid, is_bound=bool(seen.record.node))
        elif seen.reservation is None:
            if self._commits.hand_overs.is_named(seen.uid):
                self._pods.gone.put(seen.uid, None)
            self._commits.pod_gone(seen.uid)

    def node_names(self) -> list[str]:
        """Names of all nodes, sorted."""
        return sorted(self._nodes)

    def view(self, name: str) -> NodeView | None:
        """Show a node as it is counted; None if there is none of that name."""
        node = self._nodes.get(name)
        if node is None:
            return None
        pods, charges = tuple(self._pods.bound_to(name)), tuple(self._commits.charges_at(name))
        return node_view(node, self._used(node), pods=pods, charges=charges, known=Known(self._pods.records))

    def unusable(self, beside: Mapping[str, Beside]) -> Mapping[Cause, int]:
        """Free GPUs of all nodes, in nano-GPU, that no pod of their node pool that waits or is usual can take.

        ``beside``: what pods take of each node that have nothing to do with GPUs.
        """
        pools: dict[str, list[NodeRecord]] = {}
        for _, node in sorted(self._nodes.items()):
            pools.setdefault(_pool(node.labels), []).append(node)
        came: dict[str, Counter[Kind]] = {pool: Counter() for pool in pools}
        waiting: dict[str, list[PodRecord]] = {pool: [] for pool in pools}
        for pod in self._pods.records.values():
            there = self._nodes.get(pod.node)
            if not pod.node and _pool(pod.labels) in waiting:
                waiting[_pool(pod.labels)].append(pod)
            elif there is not None and not pod.is_reservation:
                kind = kind_of(pod)
                came[_pool(there.labels)].update([] if kind is None else [kind])
        sums: Counter[Cause] = Counter()
        for pool, nodes in pools.items():
            kinds = counted_kinds(came[pool], waiting_kinds(waiting[pool]))
            lefts = (self._left(node, beside.get(node.name, _NOBODY)) for node in nodes)
            sums.update(unusable_in_sum(lefts, kinds, self._settings))
        return {cause: sums[cause] for cause in Cause if sums[cause]}

    def _left(self, node: NodeRecord, beside: Beside) -> NodeLeft:
        left = node_left(node, self._used(node))
        return msgspec.structs.replace(
            left,
            cpu_milli=left.cpu_milli - beside.cpu_milli,
            mem_mib=left.mem_mib - beside.mem_mib,
            pods=left.pods - beside.pods,
        )

    def _used(self, node: NodeRecord) -> Occupancy:
        return occupancy(
            node,
            pods=tuple(self._pods.bound_to(node.name)),
            reservations=self._pods.reserved_on(node.name),
            charges=tuple(self._commits.charges_at(node.name)),
            settings=self._settings,
        )


def _pool(labels: Mapping[str, str]) -> str:
    return labels.get(names.NODE_POOL_LABEL, "")


_NOBODY: Final = Beside()


def _nothing(*_what: str) -> None:
    """Nothing is decided on this count, so nobody waits for a change."""
