"""JobSet: a tree of replicated Jobs and their replicas.

A replicated Job with `dependsOn` is made once others are ready or complete, so their pods can't wait for its own.
Replicated Jobs with the same `dependsOn` are made together, and have a PodGroup for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.fields import bounded
from podgrouper.core.generic import topology_of
from podgrouper.core.rule_input import Case
from wire import gangs, names
from wire.crds.podgroup import SubGroup

_JOBS = "spec.replicatedJobs"


def shape(case: Case) -> Shape:
    """Jobs with the same `dependsOn` (1 with `InOrder`): a part each, in it one a replica with its pods at once."""
    jobs = made_together(case)
    in_order = fields.text(case.top, "spec.startupPolicy.startupPolicyOrder") == "InOrder"
    asked = fields.annotated_count(case.top, names.BATCH_MIN_MEMBER)
    parts: list[SubGroup] = []
    for place, job in jobs:
        replicas = fields.checked_count(case.top, f"{place}.replicas", job.get("replicas"), 1) or 0
        bounded(case.top, parts, replicas + 1)
        parts.extend(_parts(case, place, job, replicas))
    # What the annotation asks of the whole can't be had of some, nor more than there are of all.
    least = min(asked or (1 if in_order else len(jobs)), len(jobs))
    suffix = f"-{fields.text(jobs[0][1], 'name')}" if jobs and _awaited(case.top, *jobs[0]) else ""
    return Shape(min_parts=least, parts=tuple(parts), part=_part_of(case.pod), suffix=suffix, knows_own_only=True)


def _part_of(pod: Json) -> str:
    labels = fields.labels_of(pod)
    name, index = labels.get(gangs.JOBSET_REPLICATED_JOB), labels.get(gangs.JOBSET_JOB_INDEX)
    return f"{name}-replica-{index}" if name and index is not None else ""


def made_together(case: Case) -> list[tuple[str, Json]]:
    """Return the replicated Jobs that are made at the same time as the pod's, each with its place."""
    jobs = [(f"{_JOBS}[{at}]", job) for at, job in enumerate(fields.mappings(case.top, _JOBS))]
    name = fields.labels_of(case.pod).get(gangs.JOBSET_REPLICATED_JOB)
    awaited = {place: _awaited(case.top, place, job) for place, job in jobs}
    own = next((awaited[place] for place, job in jobs if name and job.get("name") == name), frozenset())
    return [(place, job) for place, job in jobs if awaited[place] == own]


def _awaited(jobset: Json, place: str, job: Json) -> frozenset[tuple[str, str]]:
    """Return the names of replicated Jobs that have to be there before this one is made, each with its status."""
    listed = job.get("dependsOn")
    if not listed:
        return frozenset()
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
        raise fields.malformed(jobset, f"{place}.dependsOn", listed, "a list of objects")
    return frozenset((str(each.get("name", "")), str(each.get("status", ""))) for each in listed)


def _parts(case: Case, place: str, job: Json, replicas: int) -> Iterator[SubGroup]:
    name = fields.text(job, "name")
    yield SubGroup(name=name, min_sub_group=replicas)
    template = {"kind": "Job", "metadata": fields.mapping(job, "template").get("metadata") or {"name": name}}
    constraint = topology_of(template)
    minimum, own = _pods_of(case.top, place, job), _part_of(case.pod)
    for index in range(replicas):
        part = f"{name}-replica-{index}"
        # Of the others' Jobs nothing is known here (``Shape.knows_own_only``).
        pods = _pods_of(case.top, place, job, _succeeded(case)) if part == own else minimum
        yield SubGroup(name=part, parent=name, min_member=pods, topology_constraint=constraint)


def _succeeded(case: Case) -> int:
    """Return how many pods of the pod's own Job have succeeded."""
    job = case.chain[0] if case.chain else {}
    return (fields.count(job, "status.succeeded", 0) or 0) if fields.text(job, "kind") == "Job" else 0


def _pods_of(jobset: Json, place: str, job: Json, succeeded: int = 0) -> int:
    """Return how many pods of one replica start together. Kubernetes makes no more of them than complete the Job."""
    template = {"kind": "Job", "metadata": fields.mapping(job, "template").get("metadata") or {}}
    spec = f"{place}.template.spec"
    parallelism = fields.checked_count(jobset, f"{spec}.parallelism", fields.at(job, "template.spec.parallelism"), 1)
    completions = fields.checked_count(jobset, f"{spec}.completions", fields.at(job, "template.spec.completions"))
    left = None if completions is None else max(0, completions - succeeded)
    asked = fields.annotated_count(template, names.BATCH_MIN_MEMBER)
    at_first = 1 if _is_leader_first(jobset, template) else None
    return min(number for number in (parallelism, left, asked, at_first) if number is not None)


def _is_leader_first(*owners: Json) -> bool:
    """Whether JobSet's webhook takes the other pods of a Job only once that of index 0 has a node."""
    exclusive = [each for each in map(fields.annotations_of, owners) if gangs.JOBSET_EXCLUSIVE in each]
    return bool(exclusive) and not any(gangs.JOBSET_NODE_SELECTOR in each for each in exclusive)
