"""Reads what queues depend on from a cluster, with the rights of the user.

What decides is imported only where pods and nodes are explained: it takes longer than reading a small cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.listing import Listing
from kube.client.resources import BIND_REQUESTS, CONFIG_MAPS, NODES, POD_GROUPS, PODS, QUEUES
from scheduler.core.model.records import SeenPod
from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime, read_counts
from scheduler.core.report.listed_queues import ListedQueues
from ui.inspect.reader import allowed
from ui.queues.pools import Divided, divided, pools_of
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

if TYPE_CHECKING:
    from ui.queues.count import EvictionsRead, Known
    from ui.queues.pools import About


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What queues depend on, as it was listed. ``used``: what queues used over time, by node pool.

    ``unread``: what could not be read, and so is missing.
    """

    queues: Sequence[Queue]
    nodes: Sequence[Node]
    pods: Sequence[SeenPod]
    groups: Sequence[PodGroup]
    requests: Sequence[BindRequest]
    used: Mapping[str, UseOverTime]
    unread: Sequence[str]


async def read(api: Api, *, wall_s: int | None = None, about: About | None = None) -> Known:
    """Read queues, nodes and all pods; what is on its way, PodGroups and what claims get as far as one may.

    ``wall_s``: now, for those who also ask for the record of evictions. ``about``: the object that is asked about, so
    that all is counted for the scheduler that decides on it. Raises ApiError where queues, nodes or pods can't
    be read: then nothing true can be said.
    """
    from ui.queues import claims  # noqa: PLC0415 - what decides, NumPy included
    from ui.queues.count import Counting  # noqa: PLC0415 - as above

    unread: list[str] = []
    rooms: dict[str, EvictionsRead] = {}
    counting = Counting(may_preempt=wall_s is not None, about=about, devices=await claims.read(api, unread))
    found = await _found(api, counting.read_pod, unread)

    async def read_rooms() -> None:
        rooms.update(await evictions(api, found.queues, wall_s or 0, unread))

    if wall_s is not None:
        await allowed(read_rooms, "configmaps (the record of evictions)", unread)
    return counting.count(
        found.nodes,
        found.pods,
        found=found.queues,
        groups=found.groups,
        requests=found.requests,
        used=found.used,
        rooms=rooms,
        unread=unread,
    )


async def read_listed(api: Api) -> Divided:
    """Read the same, of which only queues are counted, for each node pool. Raises ApiError as ``read``."""
    found = await _found(api, ListedQueues().read_pod, [])
    return divided(
        found.nodes,
        found.pods,
        found=found.queues,
        groups=found.groups,
        requests=found.requests,
        used=found.used,
        unread=found.unread,
    )


async def _found(api: Api, read_pod: Callable[[Pod], SeenPod], unread: list[str]) -> Found:
    groups: list[PodGroup] = []
    requests: list[BindRequest] = []
    queues = await _queues(api)
    nodes: Listing[Node] = await api.list(NODES, skip_undecodable=True)
    pods: Listing[SeenPod] = await api.digest(PODS, read_pod)
    for plural, listing in (("queue", queues), ("node", nodes), ("pod", pods)):
        unread += [f"{plural} {one.key}: {one.error}" for one in listing.undecoded]

    async def read_groups() -> None:
        try:
            groups.extend((await api.list(POD_GROUPS, skip_undecodable=True)).items)
        except NotFound:
            return

    async def read_requests() -> None:
        try:
            requests.extend((await api.list(BIND_REQUESTS, skip_undecodable=True)).items)
        except NotFound:
            return

    used: dict[str, UseOverTime] = {}

    async def read_use() -> None:
        used.update(await use_over_time(api, queues.items))

    await allowed(read_use, "configmaps (what queues used over time, if that counts)", unread)
    await allowed(read_groups, "podgroups (which queue their pods count in)", unread)
    await allowed(read_requests, "bindrequests (what is on its way to a node)", unread)
    return Found(
        queues=queues.items,
        nodes=nodes.items,
        pods=pods.items,
        groups=groups,
        requests=requests,
        used=used,
        unread=unread,
    )


async def evictions(api: Api, queues: Iterable[Queue], wall_s: int, unread: list[str]) -> dict[str, EvictionsRead]:
    """Read the record of evictions of each scheduler: by pool of these queues, and the default one.

    A pool is left out where nobody is evicted for anybody, as its scheduler keeps no record. ``wall_s``: now.
    ``unread`` takes what of the records can't be read. Raises ApiError.
    """
    from scheduler.core.preemption import eviction_history, nomination_record  # noqa: PLC0415 - as above
    from scheduler.core.preemption.eviction_history import waits_of  # noqa: PLC0415 - as above
    from ui.queues.count import EvictionsRead  # noqa: PLC0415 - for those who ask for it

    found: dict[str, EvictionsRead] = {}
    for pool in pools_of(queues):
        name = own_name(names.NOMINATIONS, NodePool(value=pool))
        if (text := await _text(api, name, nomination_record.KEY)) is not None:
            reading = nomination_record.read(text)
            pieces = eviction_history.piece_names(NodePool(value=pool))
            hour, more = eviction_history.Hour.of(
                [await _text(api, each, eviction_history.KEY) or "" for each in pieces]
            )
            unread += [f"configmap {name}: {problem}" for problem in reading.unread]
            unread += [f"configmap {problem}" for problem in more]
            record = nomination_record.Record(reading.record.nominations, hour.evicted(wall_s), waits_of(hour, wall_s))
            found[pool] = EvictionsRead(record, wall_s)
    return found


async def use_over_time(api: Api, queues: Iterable[Queue]) -> dict[str, UseOverTime]:
    """Read what queues used over time, as each scheduler last wrote it: by pool of these queues, and the default one.

    Raises ApiError.
    """
    return {pool: await _use_of(api, NodePool(value=pool)) for pool in pools_of(queues)}


async def _use_of(api: Api, pool: NodePool) -> UseOverTime:
    """What one scheduler wrote; nothing where that does not count."""
    text = await _text(api, own_name(names.QUEUE_USE, pool), names.QUEUE_USE_COUNTS)
    counts = NOT_COUNTED if text is None else read_counts(text)
    return NOT_COUNTED if isinstance(counts, str) else counts


async def _text(api: Api, name: str, key: str) -> str | None:
    """What a scheduler keeps in a ConfigMap of its own; None where there is no such ConfigMap."""
    try:
        found = await api.get(CONFIG_MAPS, name, namespace=names.SYSTEM_NAMESPACE)
    except NotFound:
        return None
    return (found.data or {}).get(key, "")


async def _queues(api: Api) -> Listing[Queue]:
    """All Queues; none where the cluster does not know the kind."""
    try:
        return await api.list(QUEUES, skip_undecodable=True)
    except NotFound:
        return Listing([], "")
