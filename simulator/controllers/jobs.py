"""The pods of Jobs and CronJobs, and the Job itself, whose metadata the scheduler reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu.translation import shown
from kube.client.resources import JOBS
from simulator.controllers.pods import (
    Made,
    Malformed,
    Template,
    child,
    count_of,
    job_spec_of,
    later_count_of,
    make,
    number,
    owner_of,
)
from wire.core import ObjectMeta

INDEX: Final = "batch.kubernetes.io/job-completion-index"
_UID_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAME_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")
_POLICIES: Final = ("Never", "OnFailure")
_MODES: Final = ("NonIndexed", "Indexed")
_INDEX_VARIABLE: Final = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}},
}


def of_job(job: Mapping[str, Any], template: Template) -> Iterator[Made]:
    """Yield the Job and its pods, those that are made later last. Raises Malformed."""
    _check(job["spec"], template)
    meta = job["metadata"]
    try:
        msgspec.convert(meta, ObjectMeta)
    except msgspec.ValidationError as error:
        raise Malformed(f"metadata of the Job: {error}") from error
    yield Made({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job["spec"]}, JOBS)
    first = count_of("Job", job["spec"])[0]
    for place, pod in enumerate(_pods(job, template)):
        yield msgspec.structs.replace(pod, is_later=place >= first)


def of_cron_job(cron: Mapping[str, Any], template: Template) -> Iterator[Made]:
    """Yield one Job of a CronJob, named after the start of time, and its pods. Raises Malformed."""
    meta = cron["metadata"]
    namespace = {"namespace": meta["namespace"]} if meta.get("namespace") else {}
    job = job_of_cron_job(cron, name=meta["name"])
    yield from of_job({**job, "metadata": {"name": f"{meta['name']}-0", **namespace, **job["metadata"]}}, template)


def job_of_cron_job(cron: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """Return the Job that a CronJob of this name makes, without name and namespace. Raises Malformed.

    Of the template's metadata it gets labels and annotations only.
    """
    written = child(child(child(cron, "spec"), "jobTemplate"), "metadata") or {}
    spec = job_spec_of("CronJob", child(cron, "spec"))
    for field, value in (("metadata", written), ("spec", spec)):
        if not isinstance(value, Mapping):
            raise Malformed(f"spec.jobTemplate.{field} is {shown(str(value))}; allowed: a mapping")
    copied = {field: written[field] for field in ("labels", "annotations") if written.get(field)}
    return {"metadata": {**copied, "ownerReferences": [owner_of("batch/v1", "CronJob", name)]}, "spec": spec}


def owned(pod: Mapping[str, Any], job_uid: str) -> dict[str, Any]:
    """Return a pod of a Job with the UID that the API server gave the Job."""
    meta = pod["metadata"]
    owners = [{**owner, "uid": job_uid} for owner in meta["ownerReferences"]]
    labels = {**meta["labels"], **dict.fromkeys(_UID_LABELS, job_uid)}
    return {**pod, "metadata": {**meta, "labels": labels, "ownerReferences": owners}}


def _check(spec: Mapping[str, Any], template: Template) -> None:
    policy = template.raw["spec"].get("restartPolicy")
    if policy not in _POLICIES:
        said = f"{template.path}.spec.restartPolicy is {shown(repr(policy))}"
        raise Malformed(f"{said}; of a Job, {' and '.join(_POLICIES)} are allowed")
    for field in ("backoffLimit", "backoffLimitPerIndex"):
        number(spec, field, "spec", 0)
    mode = spec.get("completionMode") or _MODES[0]
    if mode not in _MODES:
        raise Malformed(f"spec.completionMode is {shown(repr(mode))}; {' and '.join(_MODES)} are allowed")
    if mode == "Indexed" and spec.get("completions") is None:
        raise Malformed("spec.completions is not set, and has to be with completionMode Indexed")


def _pods(job: Mapping[str, Any], template: Template) -> Iterator[Made]:
    spec, name = job["spec"], job["metadata"]["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True, "blockOwnerDeletion": True}
    labels = dict.fromkeys(_NAME_LABELS, name)
    count = count_of("Job", spec)[0] + later_count_of("Job", spec)
    if spec.get("completionMode") != "Indexed":
        for _ in range(count):
            yield make(template, owner, generate_name=f"{name}-", labels=labels, job=name)
        return
    containers = {field: _with_index(template.raw["spec"].get(field)) for field in ("containers", "initContainers")}
    for index in range(count):
        yield make(
            template,
            owner,
            generate_name=f"{name}-{index}-",
            labels={**labels, INDEX: str(index)},
            annotations={INDEX: str(index)},
            extra={**containers, "hostname": f"{name}-{index}"},
            job=name,
        )


def _with_index(containers: list[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Containers with the variable, unless they set it themselves."""
    return [
        {**each, "env": [*(each.get("env") or ()), _INDEX_VARIABLE]}
        if not any(child(one, "name") == _INDEX_VARIABLE["name"] for one in each.get("env") or ())
        else dict(each)
        for each in containers or ()
    ]
