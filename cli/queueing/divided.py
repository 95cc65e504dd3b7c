"""Queues of a cluster that was listed once, counted for each node pool as its scheduler counts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cli.queueing.pools import DEFAULT, Pools, pool_of
from scheduler.core.model.records import SeenPod
from scheduler.core.model.settings import NodePool
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from scheduler.core.report.listed_queues import Listed, ListedQueues
from wire.core import Node
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue


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
