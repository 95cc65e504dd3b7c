"""JobSet: its Jobs and their pods (kubernetes-sigs/jobset: API reference, labels)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from simulator.controllers import jobs
from simulator.controllers.pods import (
    Charge,
    Json,
    Malformed,
    Placed,
    Template,
    child,
    count_of,
    later_count_of,
    mapping,
    named,
    number,
    objects,
    owner_of,
    read_template,
    stored,
)
from wire import gangs


def expand(jobset: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the Jobs of all replicated Jobs, each before its pods; with `suspend` none. Raises Malformed."""
    spec = child(jobset, "spec")
    if child(spec, "suspend") is True:
        return
    total = 0
    for at, replicated in enumerate(objects(child(spec, "replicatedJobs"), "spec.replicatedJobs")):
        path = f"spec.replicatedJobs[{at}]"
        name, replicas = named(replicated, path), number(replicated, "replicas", path, 1)
        job_spec = child(child(replicated, "template"), "spec")
        if not isinstance(job_spec, Mapping):
            raise Malformed(f"{path}.template.spec has to be that of a Job")
        template = _template(job_spec, path)
        job_spec = _job_spec(job_spec, template)
        pods = count_of("Job", job_spec)[0] + later_count_of("Job", job_spec)
        # A Job is an object too, even one without pods.
        charge(replicas * max(1, pods), f"{path}.replicas", template)
        for index in range(replicas):
            labels = _labels(jobset, name, replicas, index)
            labels["jobset.sigs.k8s.io/job-global-index"] = str(total + index)
            yield from _job(jobset, replicated, template, spec=job_spec, labels=labels)
        total += replicas


def _job(
    jobset: Json, replicated: Json, template: Template, *, spec: Json, labels: Mapping[str, str]
) -> Iterator[Placed]:
    name = f"{jobset['metadata']['name']}-{replicated['name']}-{labels[gangs.JOBSET_JOB_INDEX]}"
    written = child(child(replicated, "template"), "metadata") or {}
    meta: dict[str, Any] = {
        "name": name,
        "labels": {**mapping(written, "labels", "spec.replicatedJobs.template.metadata"), **labels},
        "ownerReferences": [owner_of(jobset["apiVersion"], "JobSet", jobset["metadata"]["name"])],
    }
    if child(written, "annotations"):
        meta["annotations"] = written["annotations"]
    if jobset["metadata"].get("namespace"):
        meta["namespace"] = jobset["metadata"]["namespace"]
    full = msgspec.structs.replace(template, raw=_labelled(template.raw, labels))
    owners = [stored("batch/v1", "Job", name, above=jobset), jobset]
    for made in jobs.of_job({"metadata": meta, "spec": {**spec, "template": full.raw}}, full):
        # A pod's owner gets its UID when it is created: its reference has none until then.
        yield Placed(made, owners if made.job else (), template.path if made.job else "")


def _template(job_spec: Json, path: str) -> Template:
    """Return the pod template, restarted on failure unless it names another policy."""
    template = read_template(job_spec.get("template"), f"{path}.template.spec.template")
    spec = {"restartPolicy": "OnFailure", **template.raw["spec"]}
    return msgspec.structs.replace(template, raw={**template.raw, "spec": spec})


def _job_spec(spec: Json, template: Template) -> Json:
    """Return the spec of a Job with what JobSet adds: it is indexed, with as many completions as pods at once."""
    mode = spec.get("completionMode") or "Indexed"
    completions = {"completions": spec.get("parallelism") or 1} if mode == "Indexed" else {}
    given = {key: value for key, value in spec.items() if value is not None}
    return {**completions, **given, "completionMode": mode, "template": template.raw}


def _labelled(template: Json, labels: Mapping[str, str]) -> Json:
    meta = template.get("metadata") or {}
    return {**template, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}}}


def _labels(jobset: Json, name: str, replicas: int, index: int) -> dict[str, str]:
    return {
        gangs.JOBSET_NAME: jobset["metadata"]["name"],
        gangs.JOBSET_REPLICATED_JOB: name,
        "jobset.sigs.k8s.io/replicatedjob-replicas": str(replicas),
        gangs.JOBSET_JOB_INDEX: str(index),
    }
