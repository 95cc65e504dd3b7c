"""JobSet: a tree of replicated Jobs and their replicas (kai-contract 3.2, since KAI 0.16)."""

from __future__ import annotations

from collections.abc import Iterator

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.case import Case
from podgrouper.core.fields import bounded
from podgrouper.core.generic import topology_of
from wire import gangs, names
from wire.crds.podgroup import SubGroup


def shape(case: Case) -> Shape:
    """All replicated Jobs (1 if they start in order): a part each, and in it one a replica with its `parallelism`."""
    jobs = fields.mappings(case.top, "spec.replicatedJobs")
    in_order = fields.text(case.top, "spec.startupPolicy.startupPolicyOrder") == "InOrder"
    asked = fields.annotated_count(case.top, names.BATCH_MIN_MEMBER)
    parts: list[SubGroup] = []
    for at, job in enumerate(jobs):
        place = f"spec.replicatedJobs[{at}]"
        replicas = fields.checked_count(case.top, f"{place}.replicas", job.get("replicas"), 1) or 0
        bounded(case.top, parts, replicas + 1)
        parts.extend(_parts(case.top, place, job, replicas))
    labels = fields.labels_of(case.pod)
    job_name, index = labels.get(gangs.JOBSET_REPLICATED_JOB), labels.get(gangs.JOBSET_JOB_INDEX)
    part = f"{job_name}-replica-{index}" if job_name and index is not None else ""
    return Shape(min_parts=asked or (1 if in_order else len(jobs)), parts=tuple(parts), part=part)


def _parts(jobset: Json, place: str, job: Json, replicas: int) -> Iterator[SubGroup]:
    name = fields.text(job, "name")
    yield SubGroup(name=name, min_sub_group=replicas)
    template = {"kind": "Job", "metadata": fields.mapping(job, "template").get("metadata") or {"name": name}}
    constraint = topology_of(template)
    minimum = pods_of(jobset, place, job)
    for index in range(replicas):
        yield SubGroup(name=f"{name}-replica-{index}", parent=name, min_member=minimum, topology_constraint=constraint)


def pods_of(jobset: Json, place: str, job: Json) -> int:
    """Return how many pods of one replica start together."""
    template = {"kind": "Job", "metadata": fields.mapping(job, "template").get("metadata") or {}}
    asked = fields.annotated_count(template, names.BATCH_MIN_MEMBER)
    if asked is not None:
        return asked
    field = f"{place}.template.spec.parallelism"
    return fields.checked_count(jobset, field, fields.at(job, "template.spec.parallelism"), 1) or 0
