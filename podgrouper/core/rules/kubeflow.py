"""Training jobs of Kubeflow: TFJob, XGBoostJob, JAXJob, PaddleJob, PyTorchJob and both MPIJobs.

The launcher of an MPIJob v2beta1 may come after its workers. A PyTorchJob has a master, workers, and segments of
workers that are placed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from podgrouper.core import fields, owner_chain
from podgrouper.core.answers import Json, Shape
from podgrouper.core.fields import bounded
from podgrouper.core.generic import segment_topology
from podgrouper.core.rule_input import Case
from wire import gangs, names
from wire.crds.podgroup import SubGroup

MIN_AVAILABLE: Final = "spec.runPolicy.schedulingPolicy.minAvailable"
_MPI_WORKER: Final = ("MPIJob", "Worker")


def shape(case: Case) -> Shape:
    """`runPolicy.schedulingPolicy.minAvailable`, at most the sum of `replicas`; without it that sum."""
    total = sum(replicas(case).values())
    return Shape(minimum=_at_most(total, case.top, MIN_AVAILABLE))


def replicas(case: Case) -> dict[str, int]:
    """Return the replicas of each type, by its name as written; left out, they are what the controllers take.

    Raises Refused where no type has any, or a type is missing without which the controllers make no pod.
    """
    field = f"spec.{case.kind.replicas}"
    found: dict[str, int] = {}
    for role, spec in fields.mapping(case.top, field).items():
        usual = 0 if (case.kind.kind, role) == _MPI_WORKER else 1
        number = fields.checked_count(case.top, f"{field}.{role}.replicas", fields.at(spec, "replicas"), usual)
        found[str(role)] = number or 0
    missing = [role for role in case.kind.required if role not in found]
    if missing or not found:
        raise fields.malformed(
            case.top, field, None, f"replica types {', '.join(case.kind.required) or 'with replicas'}"
        )
    if not any(found.values()):
        raise fields.malformed(case.top, f"{field}.{next(iter(found))}.replicas", 0, "of one type, a number above 0")
    return found


_LAUNCHER: Final = "Launcher"


def mpi_shape(case: Case) -> Shape:
    """As other Kubeflow jobs; with `WaitForWorkersReady` the launcher counts once it exists."""
    found = replicas(case)
    total = sum(found.values())
    if fields.text(case.top, "spec.launcherCreationPolicy") == "WaitForWorkersReady" and not _has_launcher(case):
        total -= found[_LAUNCHER]
    return Shape(minimum=_at_most(total, case.top, MIN_AVAILABLE))


def _has_launcher(case: Case) -> bool:
    """Whether the launcher's Job is there. A pod whose direct owner is a Job is the launcher itself."""
    if case.chain and fields.text(case.chain[0], "kind") == "Job":
        return True
    name = f"{fields.text(case.top, 'metadata.name')}-launcher"
    return owner_chain.named(case.read, "batch", "Job", name) is not None


_MASTER, _WORKER = "master", "worker"
_TEMPLATE = "spec.pytorchReplicaSpecs.Worker.template"


def pytorch_shape(case: Case) -> Shape:
    """`minAvailable` or `elasticPolicy.minReplicas`, at most the sum of `replicas`; parts `master` and `worker`."""
    found = replicas(case)
    masters = found.get("Master", 0)
    total = _at_most(sum(found.values()), case.top, MIN_AVAILABLE, "spec.elasticPolicy.minReplicas")
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
    parts.extend(_segments(case, full, workers, size))
    if part == _WORKER:
        part = f"{_WORKER}-{fields.index(case.pod, gangs.KUBEFLOW_REPLICA_INDEX) // size}"
    return Shape(parts=tuple(parts), part=part)


def _at_most(total: int, job: Json, *paths: str) -> int:
    """Return the first of these fields that is set, at most the pods that the controllers make; else those."""
    least = [number for path in paths if (number := fields.count(job, path)) is not None]
    return min(least[0], total) if least else total


def _segment_size(case: Case) -> int | None:
    template = fields.mapping(case.top, _TEMPLATE)
    for obj in (case.pod, {"kind": case.kind.kind, **template}):
        if (size := fields.annotated_count(obj, names.SEGMENT_SIZE)) is not None:
            return size
    return None


def _segments(case: Case, count: int, workers: int, size: int) -> Iterator[SubGroup]:
    """Yield the segments: whole ones first, then the rest of the minimum; what is elastic has minimum 0."""
    constraint = segment_topology(case.pod, fields.mapping(case.top, _TEMPLATE), case.top)
    for index in range(count):
        yield SubGroup(
            name=f"{_WORKER}-{index}",
            parent=_WORKER,
            min_member=max(0, min(size, workers - index * size)),
            topology_constraint=constraint,
        )
