"""What the page has read of a cluster, counted as the scheduler counts it: for questions why a pod waits. Pure.

The page keeps less of pods than a scheduler (``objects.kept``): no volumes, and of pods without GPUs no affinity.
It reads no ResourceClaims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cli.page.objects import Objects
from cli.queueing.counting import Counting, EvictionsRead, Known
from cli.queueing.pools import About
from scheduler.core.queues.use_over_time import UseOverTime
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
    counting = Counting(may_make_room=bool(there.rooms), about=about)
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
