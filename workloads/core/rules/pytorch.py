"""PyTorchJob: a master, workers, and segments of workers that are placed together (kai-contract 3.2)."""

from __future__ import annotations

from collections.abc import Iterator

from wire import gangs, names
from wire.crds.podgroup import SubGroup, TopologyConstraint
from workloads.core import fields
from workloads.core.case import Case
from workloads.core.parts import bounded
from workloads.core.rules import kubeflow
from workloads.core.values import Json, Shape

_MASTER, _WORKER = "master", "worker"
_TEMPLATE = "spec.pytorchReplicaSpecs.Worker.template"


def shape(case: Case) -> Shape:
    """The sum of `replicas`, or `elasticPolicy.minReplicas`, or `minAvailable`; parts `master` and `worker`."""
    found = kubeflow.replicas(case)
    masters = found.get("Master", 0)
    total = _last(sum(found.values()), case.top)
    role = fields.labels_of(case.pod).get(gangs.KUBEFLOW_REPLICA_TYPE, "").lower()
    workers = max(0, total - masters)
    parts = [SubGroup(name=_MASTER, min_member=masters)] if masters else []
    part = role if role in {_MASTER, _WORKER} else ""
    size = _segment_size(case)
    if size is None or not found.get("Worker"):
        parts.append(SubGroup(name=_WORKER, min_member=workers))
        return Shape(minimum=total, parts=tuple(parts), part=part)
    full = -(-found["Worker"] // size)
    bounded(case.top, parts, full + 1)
    parts.append(SubGroup(name=_WORKER, min_sub_group=-(-workers // size)))
    parts.extend(_segments(case.top, full, workers, size))
    if part == _WORKER:
        part = f"{_WORKER}-{fields.index(case.pod, gangs.KUBEFLOW_REPLICA_INDEX) // size}"
    return Shape(parts=tuple(parts), part=part)


def _last(total: int, job: Json) -> int:
    """Return the minimum: the last of the fields that is set wins."""
    for path in ("spec.elasticPolicy.minReplicas", kubeflow.MIN_AVAILABLE):
        total = fields.count(job, path, total) or 0
    return total


def _segment_size(case: Case) -> int | None:
    template = fields.mapping(case.top, _TEMPLATE)
    for obj in (case.pod, {"kind": case.kind.kind, **template}):
        if (size := fields.annotated_count(obj, names.SEGMENT_SIZE)) is not None:
            return size
    return None


def _segments(job: Json, count: int, workers: int, size: int) -> Iterator[SubGroup]:
    """Yield the segments: whole ones first, then the rest of the minimum; what is elastic has minimum 0."""
    written = fields.annotations_of(fields.mapping(job, _TEMPLATE))
    constraint = TopologyConstraint(
        topology=fields.annotations_of(job).get(names.TOPOLOGY, ""),
        required_topology_level=written.get(names.SEGMENT_TOPOLOGY_REQUIRED, ""),
        preferred_topology_level=written.get(names.SEGMENT_TOPOLOGY_PREFERRED, ""),
    )
    asks = constraint.required_topology_level or constraint.preferred_topology_level
    for index in range(count):
        yield SubGroup(
            name=f"{_WORKER}-{index}",
            parent=_WORKER,
            min_member=max(0, min(size, workers - index * size)),
            topology_constraint=constraint if asks else None,
        )
