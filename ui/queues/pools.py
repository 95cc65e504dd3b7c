"""Queues of a cluster that was listed once, counted for each node pool as its scheduler counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from runtime.options.selection import NODE, POD
from scheduler.core.model.records import PodRecord, SeenPod
from scheduler.core.model.settings import NodePool
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from scheduler.core.report.queue_explanation import Listed, ListedQueues
from wire import names
from wire.api_groups import PodDisruptionBudget
from wire.core import Node, ObjectMeta, Pod, PriorityClass
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.crds.topology import Topology

if TYPE_CHECKING:
    from scheduler.core.preemption.nomination_record import Record

#: The value of objects without the label.
DEFAULT: Final = ""
K = TypeVar("K")
P = TypeVar("P", Pod, SeenPod)


class EvictionsRead(msgspec.Struct, frozen=True):
    """The record of evictions, as the scheduler wrote it, read at this time of the wall clock."""

    record: Record
    wall_s: int


class Found(msgspec.Struct, Generic[P], frozen=True, kw_only=True):
    """What queues depend on, as it was listed, written or followed; pods as they are, or what counts of them.

    ``used``: what queues used over time, and ``records``: records of evictions, both by node pool as far as they are
    known. ``priority_classes``, ``topologies``, ``budgets``: None where they were not read. ``knows_evictions``: a
    pool without a record evicts no pod for another. ``unread``: what could not be read, and so is missing.
    """

    nodes: Sequence[Node] = ()
    pods: Sequence[P] = ()
    queues: Sequence[Queue] = ()
    groups: Sequence[PodGroup] = ()
    requests: Sequence[BindRequest] = ()
    used: Mapping[str, UseOverTime] = {}
    records: Mapping[str, EvictionsRead] = {}
    priority_classes: Sequence[PriorityClass] | None = None
    topologies: Sequence[Topology] | None = None
    budgets: Sequence[PodDisruptionBudget] | None = None
    knows_evictions: bool = True
    unread: Sequence[str] = ()


#: Of PodGroups whose class was not read.
_WITHOUT_CLASSES: Final = "PriorityClasses: not read, so pods of PodGroups that name one count with their own priority"


def without_classes(found: Found[SeenPod]) -> Sequence[str]:
    """Return what is missing where PodGroups name PriorityClasses and these were not read."""
    are_missing = found.priority_classes is None and any(group.spec.priority_class_name for group in found.groups)
    return [_WITHOUT_CLASSES] if are_missing else []


def digested(found: Found[Pod], read_pod: Callable[[Pod], SeenPod]) -> Found[SeenPod]:
    """Return the same with what counts of each pod."""
    return Found(
        nodes=found.nodes,
        pods=list(map(read_pod, found.pods)),
        queues=found.queues,
        groups=found.groups,
        requests=found.requests,
        used=found.used,
        records=found.records,
        priority_classes=found.priority_classes,
        topologies=found.topologies,
        budgets=found.budgets,
        knows_evictions=found.knows_evictions,
        unread=found.unread,
    )


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, PodGroup or node that is asked about. ``namespace`` "" for a node."""

    kind: str
    name: str
    namespace: str = ""


def unread_of(kind: str, unread: Iterable[str]) -> str:
    """What could not be read of a kind, after a message that an object of it is not there; "" for nothing."""
    return "".join(f"; {each}" for each in unread if f"of kind {kind}:" in each)


def pool_of(labels: Mapping[str, str] | None) -> str:
    """Return the value of the label."""
    return (labels or {}).get(names.NODE_POOL_LABEL, DEFAULT)


def pools_of(queues: Iterable[Queue]) -> list[str]:
    """Return the values of all pools that have a queue, and the default one: each may have a scheduler."""
    return sorted({DEFAULT, *(_pool(queue.metadata) for queue in queues)})


class Pools:
    """The pools of a cluster, as far as labels tell. Only objects with the label are kept.

    A scheduler knows its pool from its settings. Here KAI's label counts, which schedulers go by unless
    ``--nodepool-label-key`` names another one (docs/node-pools.md).
    """

    def __init__(self, found: Found[SeenPod]) -> None:
        known = {(group.metadata.namespace, group.metadata.name): _pool(group.metadata) for group in found.groups}
        self._groups = _labelled(known)
        self._nodes = _labelled({node.metadata.name: _pool(node.metadata) for node in found.nodes})
        self._pods: dict[tuple[str, str], str] = {}
        for seen in found.pods:
            pod = seen.record
            if pod is not None:
                # As core/model/seen_pods.py has it.
                own = pool_of(pod.labels)
                value = known.get((pod.namespace, pod.pod_group), own) if pod.pod_group else own
                if pod.charged is not None and pod.charged.pool is not None:
                    value = pod.charged.pool
                if value != DEFAULT:
                    self._pods[pod.namespace, pod.name] = value
        has_queues = any(_pool(queue.metadata) != DEFAULT for queue in found.queues)
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


def divided(found: Found[SeenPod]) -> Divided:
    """Count everything, once for each pool that has queues."""
    pools = Pools(found)
    queues: dict[str, list[Queue]] = {}
    for queue in found.queues:
        queues.setdefault(pool_of(queue.metadata.labels), []).append(queue)
    listed: dict[str, Listed] = {}
    for value in sorted(queues) or [DEFAULT]:
        pool = NodePool(value=value) if pools.is_divided else None
        reader = ListedQueues(pool)
        listed[value] = reader.count(
            found.nodes,
            map(reader.interned, found.pods if pool is None else _mattering(found, pools, value)),
            found=queues.get(value, ()),
            groups=found.groups,
            requests=found.requests,
            classes=found.priority_classes or (),
            used=found.used.get(value, NOT_COUNTED),
        )
    return Divided(listed, [*found.unread, *without_classes(found)])


def _mattering(found: Found[SeenPod], pools: Pools, value: str) -> Iterator[SeenPod]:
    """Pods of a pool, and all that are on its nodes or have ended: the rest counts for nothing there."""
    here = {node.metadata.name for node in found.nodes if pool_of(node.metadata.labels) == value}
    for seen in found.pods:
        pod = seen.record
        if pod is None or pod.node in here or pools.of_pod(pod) == value:
            yield seen
