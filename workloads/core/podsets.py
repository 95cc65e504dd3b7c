"""The templates that a workload has for its pods, and the part of the PodGroup that each is for.

Kueue calls one of them a pod set, for all replicas of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from workloads.core import fields
from workloads.core.case import Case
from workloads.core.rules import ray
from workloads.core.values import Json

_LWS: Final = "spec.leaderWorkerTemplate"


class PodSet(msgspec.Struct, frozen=True):
    """A template at ``place`` in ``owner``. ``part``: the sub-group of its pods, where the PodGroup has one for them.

    ``place`` is "" where a pod stands for itself.
    """

    part: str
    owner: Json
    place: str
    template: Json


def of(case: Case) -> list[PodSet]:
    """Return the templates of a workload; the pod itself where nothing stands above it."""
    if case.top is case.pod:
        return [PodSet("", case.pod, "", case.pod)]
    return list(_BY_KIND.get(fields.text(case.top, "kind"), _single)(case))


def _single(case: Case) -> Iterator[PodSet]:
    yield _at("", case.top, "spec.template")


def _kubeflow(case: Case) -> Iterator[PodSet]:
    field = f"spec.{case.kind.replicas}"
    for role in fields.mapping(case.top, field) if case.kind.replicas else ():
        yield _at(str(role).lower(), case.top, f"{field}.{role}.template")


def _jobset(case: Case) -> Iterator[PodSet]:
    field = "spec.replicatedJobs"
    for number, job in enumerate(fields.mappings(case.top, field)):
        template = _object(fields.at(job, "template.spec.template"))
        yield PodSet(fields.text(job, "name"), case.top, f"{field}[{number}].template.spec.template", template)


def _ray(case: Case) -> Iterator[PodSet]:
    cluster = ray.cluster_of(case)
    spec = ray.spec_of(cluster)
    yield _at(ray.HEAD, cluster, f"{spec}.headGroupSpec.template")
    for number, group in ray.worker_groups(cluster):
        place, template = f"{spec}.workerGroupSpecs[{number}].template", _object(group.get("template"))
        yield PodSet(ray.part_name(number, group), cluster, place, template)


def _lws(case: Case) -> Iterator[PodSet]:
    if fields.at(case.top, f"{_LWS}.leaderTemplate") is None:
        yield _at("", case.top, f"{_LWS}.workerTemplate")
        return
    yield _at("leader", case.top, f"{_LWS}.leaderTemplate")
    yield _at("workers", case.top, f"{_LWS}.workerTemplate")


def _at(part: str, owner: Json, place: str) -> PodSet:
    return PodSet(part, owner, place, _object(fields.at(owner, place)))


def _object(value: object) -> Json:
    """A template. What stands there and is none says nothing: kinds that nobody knows may have other fields."""
    return value if isinstance(value, Mapping) else {}


_BY_KIND: Final[Mapping[str, Callable[[Case], Iterator[PodSet]]]] = {
    **dict.fromkeys(("TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob", "MPIJob"), _kubeflow),
    "JobSet": _jobset,
    **dict.fromkeys(ray.CLUSTER_SPECS, _ray),
    "LeaderWorkerSet": _lws,
}
