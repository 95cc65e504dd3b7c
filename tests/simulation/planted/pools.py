"""Faulty schedulers of node pools: one takes from pods of another pool, others use queues or nodes of another pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Elsewhere
from scheduler.core.model.settings import NodePool, Settings
from tests.simulation.planted.wires import Rewriting
from wire import names

#: The value of the label of the pool whose scheduler is faulty, and the user that it is.
POOL = "a"
USER = f"scheduler-{POOL}"


class TakesTenants(Cluster):
    """A pod that runs is of the pool of its node, so it goes for pods of a pool that is not its own."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._elsewhere = _ByNode(settings.pool, self._pod_groups, self._nodes)


class _ByNode(Elsewhere):
    def __init__(
        self, pool: NodePool | None, groups: Mapping[tuple[str, str], PodGroupRecord], nodes: Mapping[str, NodeRecord]
    ) -> None:
        super().__init__(pool, groups)
        self._nodes = nodes

    @override
    def _is_here(self, pod: PodRecord) -> bool:
        node = self._nodes.get(pod.node)
        if self._pool is None or node is None:
            return super()._is_here(pod)
        return self._pool.takes(node.labels)


@dataclass(slots=True)
class _Labelling(Rewriting):
    """A scheduler takes the objects of a kind for those of its pool."""

    kind: ClassVar[str]

    @override
    def rewritten(self, text: bytes) -> bytes:
        if f'"{self.kind}'.encode() not in text:
            return text
        told = msgspec.json.decode(text)
        if told.get("kind") == f"{self.kind}List":
            found: list[dict[str, Any]] = told["items"]
        else:
            one = told.get("object", told)
            found = [one] if one.get("kind") == self.kind else []
        for each in found:
            each["metadata"].setdefault("labels", {})[names.NODE_POOL_LABEL] = POOL
        return msgspec.json.encode(told)


class UsesAllQueues(_Labelling):
    """It uses the Queues of all pools, so each of two schedulers gives out all of a limit."""

    kind = "Queue"


class UsesAllNodes(_Labelling):
    """It places pods on the nodes of all pools."""

    kind = "Node"
