"""Queues of a cluster that was listed once, counted for each node pool as its scheduler counts them.

Of which node pool the objects of a cluster are, as far as labels tell: who decides on a group, and on which nodes.

A scheduler knows its pool from its settings. Who reads a cluster takes KAI's label, which schedulers go by unless
``--nodepool-label-key`` names another one (docs/node-pools.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from runtime.options.selection import NODE, POD
from scheduler.core.model.records import PodRecord, SeenPod
from scheduler.core.model.settings import NodePool
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from scheduler.core.report.listed_queues import Listed, ListedQueues
from wire import names
from wire.core import Node, ObjectMeta
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

#: The value of objects without the label.
DEFAULT: Final = ""
K = TypeVar("K")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, PodGroup or node that is asked about. ``namespace`` "" for a node."""

    kind: str
    name: str
    namespace: str = ""


def pool_of(labels: Mapping[str, str] | None) -> str:
    """Return the value of the label."""
    return (labels or {}).get(names.NODE_POOL_LABEL, DEFAULT)


def pools_of(queues: Iterable[Queue]) -> list[str]:
    """Return the values of all pools that have a queue, and the default one: each may have a scheduler."""
    return sorted({DEFAULT, *(_pool(queue.metadata) for queue in queues)})


class Pools:
    """The pools of a cluster. Only objects with the label are kept."""

    def __init__(
        self, nodes: Iterable[Node], pods: Iterable[SeenPod], groups: Iterable[PodGroup], queues: Iterable[Queue]
    ) -> None:
        known = {(group.metadata.namespace, group.metadata.name): _pool(group.metadata) for group in groups}
        self._groups = _labelled(known)
        self._nodes = _labelled({node.metadata.name: _pool(node.metadata) for node in nodes})
        self._pods: dict[tuple[str, str], str] = {}
        for seen in pods:
            pod = seen.record
            if pod is not None:
                # As core/model/seen_pods.py has it.
                own = pool_of(pod.labels)
                value = known.get((pod.namespace, pod.pod_group), own) if pod.pod_group else own
                if pod.charged is not None and pod.charged.pool is not None:
                    value = pod.charged.pool
                if value != DEFAULT:
                    self._pods[pod.namespace, pod.name] = value
        has_queues = any(_pool(queue.metadata) != DEFAULT for queue in queues)
        #: Whether anything is of another pool than the default one.
        self.is_divided: Final = bool(has_queues or self._groups or self._nodes or self._pods)

    def of(self, about: About) -> str:
        """Return the pool of an object; the default one for one that is not there."""
        if about.kind == NODE:
            return self._nodes.get(about.name, DEFAULT)
        return (self._pods if about.kind == POD else self._groups).get((about.namespace, about.name), DEFAULT)

    def of_pod(self, pod: PodRecord) -> str:
        """Return the pool of a pod that is there."""
        return self._pods.get((pod.namespace, pod.name), DEFAULT)


def _pool(meta: ObjectMeta) -> str:
    return pool_of(meta.labels)


def _labelled(pools: Mapping[K, str]) -> dict[K, str]:
    return {key: value for key, value in pools.items() if value != DEFAULT}


class Divided(msgspec.Struct, frozen=True):
    """The queues of each pool that has some, by its label's value; without pools, or without any Queue, those of "".

    ``unread``: what could not be read, and so is missing.
    """

    of: Mapping[str, Listed]
    unread: Sequence[str] = ()

    def of_queue(self, name: str) -> Listed | None:
        """Return the pool's queues that this one is among; None: there is no such queue."""
        return next((listed for listed in self.of.values() if listed.queues.records.get(name) is not None), None)

    def names(self) -> list[str]:
        """Names of all queues, sorted."""
        return sorted(record.name for listed in self.of.values() for record in listed.queues.records.all())

    def waiting_in(self, name: str) -> int:
        """How many pods name a queue that there is not."""
        sums = (listed.queues.sums.sums.get(name) for listed in self.of.values())
        return sum(found.pods for found in sums if found is not None)


def divided(
    nodes: Sequence[Node],
    pods: Sequence[SeenPod],
    *,
    found: Sequence[Queue],
    groups: Sequence[PodGroup] = (),
    requests: Sequence[BindRequest] = (),
    used: Mapping[str, UseOverTime] | None = None,
    unread: Sequence[str] = (),
) -> Divided:
    """Count everything, once for each pool that has queues. ``used``: what queues used over time, by pool."""
    pools = Pools(nodes, pods, groups, found)
    queues: dict[str, list[Queue]] = {}
    for queue in found:
        queues.setdefault(pool_of(queue.metadata.labels), []).append(queue)
    listed: dict[str, Listed] = {}
    for value in sorted(queues) or [DEFAULT]:
        pool = NodePool(value=value) if pools.is_divided else None
        reader = ListedQueues(pool)
        listed[value] = reader.count(
            nodes,
            map(reader.interned, pods if pool is None else _mattering(pods, nodes, pools, value)),
            found=queues.get(value, ()),
            groups=groups,
            requests=requests,
            used=(used or _UNUSED).get(value, NOT_COUNTED),
        )
    return Divided(listed, unread)


_UNUSED: Final[Mapping[str, UseOverTime]] = {}


def _mattering(pods: Iterable[SeenPod], nodes: Iterable[Node], pools: Pools, value: str) -> Iterator[SeenPod]:
    """Pods of a pool, and all that are on its nodes or have ended: the rest counts for nothing there."""
    here = {node.metadata.name for node in nodes if pool_of(node.metadata.labels) == value}
    for seen in pods:
        pod = seen.record
        if pod is None or pod.node in here or pools.of_pod(pod) == value:
            yield seen
