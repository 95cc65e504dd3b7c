"""Reads what queues depend on from a cluster, with the rights of the user."""

from __future__ import annotations

from cli.inspection.reading import allowed
from cli.queueing.counting import Counting, EvictionsRead, Known
from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.listing import Listing
from kube.client.resources import BIND_REQUESTS, CONFIG_MAPS, NODES, POD_GROUPS, PODS, QUEUES
from scheduler.core.model.records import SeenPod
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime, read_counts
from scheduler.core.room.written import KEY as ROOM_KEY
from scheduler.core.room.written import Record
from scheduler.core.room.written import read as read_record
from wire import names
from wire.core import Node
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue


async def read(api: Api, *, wall_s: int | None = None) -> Known:
    """Read queues, nodes and all pods; what is on its way and PodGroups as far as one may.

    ``wall_s``: now, for those who also ask who is evicted for whom. Raises ApiError where queues, nodes or pods can't
    be read: then nothing true can be said.
    """
    unread: list[str] = []
    room: EvictionsRead | None = None

    async def read_room() -> None:
        nonlocal room
        record = await _room(api, unread)
        room = None if record is None else EvictionsRead(record, wall_s or 0)

    if wall_s is not None:
        await allowed(read_room, "configmaps (who is evicted for whom)", unread)
    counting = Counting(makes_room=room is not None)
    groups: list[PodGroup] = []
    requests: list[BindRequest] = []
    queues = await _queues(api)
    nodes: Listing[Node] = await api.list(NODES, skip_undecodable=True)
    pods: Listing[SeenPod] = await api.digest(PODS, counting.read_pod)
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

    used = NOT_COUNTED

    async def read_use() -> None:
        nonlocal used
        used = await _use(api)

    await allowed(read_use, "configmaps (what queues used over time, if that counts)", unread)
    await allowed(read_groups, "podgroups (which queue their pods count in)", unread)
    await allowed(read_requests, "bindrequests (what is on its way to a node)", unread)
    return counting.count(
        nodes.items,
        pods.items,
        found=queues.items,
        groups=groups,
        requests=requests,
        used=used,
        room=room,
        unread=unread,
    )


async def _room(api: Api, unread: list[str]) -> Record | None:
    """Who is evicted for whom; None where nobody is evicted for anybody, as the scheduler keeps no record."""
    try:
        found = await api.get(CONFIG_MAPS, names.ROOM, namespace=names.SYSTEM_NAMESPACE)
    except NotFound:
        return None
    reading = read_record((found.data or {}).get(ROOM_KEY, ""))
    unread += [f"configmap {names.ROOM}: {problem}" for problem in reading.unread]
    return reading.record


async def _use(api: Api) -> UseOverTime:
    """What queues used over time, as the scheduler last wrote it; nothing where that does not count."""
    try:
        found = await api.get(CONFIG_MAPS, names.QUEUE_USE, namespace=names.SYSTEM_NAMESPACE)
    except NotFound:
        return NOT_COUNTED
    counts = read_counts((found.data or {}).get(names.QUEUE_USE_COUNTS, ""))
    return NOT_COUNTED if isinstance(counts, str) else counts


async def _queues(api: Api) -> Listing[Queue]:
    """All Queues; none where the cluster does not know the kind."""
    try:
        return await api.list(QUEUES, skip_undecodable=True)
    except NotFound:
        return Listing([], "")
