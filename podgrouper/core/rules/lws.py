"""LeaderWorkerSet: a PodGroup for each of its groups, a leader and workers, in segments (kai-contract 3.2)."""

from __future__ import annotations

from typing import Final

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.case import Case
from podgrouper.core.fields import bounded
from wire import gangs, names
from wire.crds.podgroup import SubGroup
from wire.go import parse_int

_LEADER, _WORKERS = "leader", "workers"
_SIZE: Final = "spec.leaderWorkerTemplate.size"
_SEGMENT: Final = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize"
_POLICY: Final = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType"
_WORKER_TEMPLATE: Final = "spec.leaderWorkerTemplate.workerTemplate"


def shape(case: Case) -> Shape:
    """A PodGroup a group: `size`, in parts `leader` and `workers` or in segments; 1 while `LeaderReady` waits."""
    index = _index(case.pod, gangs.LWS_GROUP_INDEX)
    worker = _index(case.pod, gangs.LWS_WORKER_INDEX)
    size = fields.annotated_count(case.pod, gangs.LWS_SIZE) or fields.count(case.top, _SIZE, 1) or 1
    suffix = f"-group-{index}"
    if fields.text(case.top, "spec.startupPolicy") == "LeaderReady" and not _leader_has_node(case, worker):
        return Shape(minimum=1, suffix=suffix)
    segment = _segment_size(case.top, size)
    if segment is None:
        parts = _leader_and_workers(size)
        return Shape(minimum=size, parts=parts, part=_WORKERS if worker else _LEADER, suffix=suffix)
    excluded = fields.text(case.top, _POLICY) == "LeaderExcluded"
    bounded(case.top, (), size // segment + 2)
    segments = _segments(size, segment, excluded=excluded)
    return Shape(minimum=size, parts=segments, part=_part(worker, size, segment, excluded=excluded), suffix=suffix)


def _leader_and_workers(size: int) -> tuple[SubGroup, ...]:
    leader = SubGroup(name=_LEADER, min_member=1)
    return (leader, SubGroup(name=_WORKERS, min_member=size - 1)) if size > 1 else (leader,)


def _segments(size: int, segment: int, *, excluded: bool) -> tuple[SubGroup, ...]:
    """Return the segments; the last one has what is left."""
    extra = 0 if excluded or size % segment != 1 else 1
    pods = size - 1 if excluded else size - extra
    count = -(-pods // segment)
    members = [min(segment, pods - index * segment) for index in range(count)]
    members[0] += extra
    found = [SubGroup(name=f"segment-{index}", min_member=number) for index, number in enumerate(members)]
    return (SubGroup(name=_LEADER, min_member=1), *found) if excluded else tuple(found)


def _part(worker: int, size: int, segment: int, *, excluded: bool) -> str:
    """Return the part of a pod by its worker index (0: the leader).

    Where the leader makes one pod too many for whole segments, segment 0 takes it.
    """
    if excluded:
        return _LEADER if worker == 0 else f"segment-{(worker - 1) // segment}"
    has_extra = size % segment == 1
    return f"segment-{max(0, worker - 1) // segment if has_extra else worker // segment}"


def _segment_size(lws: Json, size: int) -> int | None:
    """Return the pods of a segment: of the policy, else of annotations; None if no segments are asked for."""
    number = fields.count(lws, _SEGMENT)
    for obj in (lws, {"kind": "LeaderWorkerSet", **fields.mapping(lws, _WORKER_TEMPLATE)}):
        number = fields.annotated_count(obj, names.SEGMENT_SIZE) if number is None else number
    if number is not None and not 1 < number <= size:
        raise fields.malformed(lws, _SEGMENT, number, f"a number from 2 to {size}, the size of a group")
    return number


def _leader_has_node(case: Case, worker: int) -> bool:
    """Whether the leader was placed. A worker's leader is the Pod among its owners."""
    leader = case.pod if worker == 0 else next((each for each in case.chain if each.get("kind") == "Pod"), {})
    return bool(fields.text(leader, "spec.nodeName"))


def _index(pod: Json, label: str) -> int:
    text = fields.labels_of(pod).get(label)
    number = parse_int(text or "")
    if number is None or number < 0:
        raise fields.malformed(pod, f"metadata.labels[{label}]", text, "a number of 0 or more")
    return number
