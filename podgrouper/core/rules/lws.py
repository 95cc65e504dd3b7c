"""LeaderWorkerSet: a PodGroup for each of its groups, a leader and workers, in segments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.fields import bounded
from podgrouper.core.generic import segment_topology
from podgrouper.core.rule_input import Case
from wire import gangs, names
from wire.crds.podgroup import SubGroup, TopologyConstraint
from wire.go import parse_int

_LEADER, _WORKERS = "leader", "workers"
#: The PodGroup of a group is named with these before and after name and UID of its set.
_PREFIX, _GROUP = "pg-", "-group-"
_SIZE: Final = "spec.leaderWorkerTemplate.size"
_SEGMENT: Final = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize"
_POLICY: Final = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType"
_WORKER_TEMPLATE: Final = "spec.leaderWorkerTemplate.workerTemplate"


def shape(case: Case) -> Shape:
    """A PodGroup a group: `size`, in parts `leader` and `workers` or in segments; 1 while workers wait for a leader."""
    index = _index(case.pod, gangs.LWS_GROUP_INDEX)
    worker = _index(case.pod, gangs.LWS_WORKER_INDEX)
    size = fields.annotated_count(case.pod, gangs.LWS_SIZE) or fields.count(case.top, _SIZE, 1) or 1
    segment = _segment_size(case.top, size)
    if segment is None:
        parts, first, part = _leader_and_workers(size), _LEADER, _WORKERS if worker else _LEADER
    else:
        excluded = fields.text(case.top, _POLICY) == "LeaderExcluded"
        bounded(case.top, (), size // segment + 2)
        constraint = segment_topology(case.pod, fields.mapping(case.top, _WORKER_TEMPLATE), case.top)
        parts = _segments(size, segment, constraint, excluded=excluded)
        first, part = (_part(number, size, segment, excluded=excluded) for number in (0, worker))
    if _is_leader_first(case.top) and not _leader_has_node(case, worker):
        size, parts = 1, tuple(replace(each, min_member=int(each.name == first)) for each in parts)
    return Shape(minimum=size, parts=parts, part=part, suffix=f"{_GROUP}{index}")


def _leader_and_workers(size: int) -> tuple[SubGroup, ...]:
    leader = SubGroup(name=_LEADER, min_member=1)
    return (leader, SubGroup(name=_WORKERS, min_member=size - 1)) if size > 1 else (leader,)


def _segments(
    size: int, segment: int, constraint: TopologyConstraint | None, *, excluded: bool
) -> tuple[SubGroup, ...]:
    """Return the segments, each under the constraint; the last one has what is left."""
    extra = 0 if excluded or size % segment != 1 else 1
    pods = size - 1 if excluded else size - extra
    count = -(-pods // segment)
    members = [min(segment, pods - index * segment) for index in range(count)]
    members[0] += extra
    found = [
        SubGroup(name=f"segment-{index}", min_member=number, topology_constraint=constraint)
        for index, number in enumerate(members)
    ]
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


def group_of(pod_group: str, owners: Iterable[str]) -> tuple[str, str, int] | None:
    """Return UID and name of the set, and which of its groups a PodGroup of this name is for; None: it is for none.

    ``owners``: UIDs of the PodGroup's owners.
    """
    for uid in owners:
        before, is_one, index = pod_group.rpartition(f"-{uid}{_GROUP}")
        number = parse_int(index)
        if is_one and uid and before.startswith(_PREFIX) and number is not None and number >= 0:
            return uid, before.removeprefix(_PREFIX), number
    return None


def _is_leader_first(lws: Json) -> bool:
    """Whether workers are made only once their leader has a node."""
    is_exclusive = gangs.LWS_EXCLUSIVE in fields.annotations_of(lws)
    return is_exclusive or fields.text(lws, "spec.startupPolicy") == "LeaderReady"


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
