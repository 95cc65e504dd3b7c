"""Of which node pool the objects of a cluster are, as far as labels tell: who decides on a group, and on which nodes.

A scheduler knows its pool from its settings. Who reads a cluster takes KAI's label, which schedulers go by unless
``--nodepool-label-key`` names another one (docs/node-pools.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from cli.inspection.options import NODE, POD
from scheduler.core.model.records import PodRecord, SeenPod
from wire import names
from wire.core import Node, ObjectMeta
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
